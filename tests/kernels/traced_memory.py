"""The CUDA path without a GPU: tensors on `cuda` are fake, tensors on the host are real, and device bytes are counted.

A fake tensor has a shape, a type, strides and a storage of so many bytes, and no memory. Every operation on one runs
down to torch's own kernels, whose results are counted for as long as anything holds them. Triton kernels are launched
and do nothing; attention goes to the fused kernel that is pinned; compiled pieces take their results and nothing else.

Not seen: what a kernel takes and gives back within one call (workspaces of cuBLAS and cuDNN), and what the allocator
rounds up or leaves in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from kernels import attention, forward
from kernels.device import Backend, HostMemory, NotCaptured
from kernels.pointwise import Pointwise

aten = torch.ops.aten
Generator = torch.Generator


class Trace(TorchDispatchMode):
    """Counts the device bytes that are alive, while it is the current mode.

    Attributes
    ----------
    peak_bytes : int
        The most that were alive at once since the trace began, or since `forget_peak`.
    """

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._fake = fake
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    @property
    def live_bytes(self) -> int:
        self._storages = {key: held for key, held in self._storages.items() if not held[0].expired()}
        return sum(nbytes for _, nbytes in self._storages.values())

    def forget_peak(self) -> None:
        self.peak_bytes = self.live_bytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _is_on_device(args, kwargs):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        with self:
            parts = _decomposed(func, args, kwargs)
        if parts is not NotImplemented:
            return parts
        fakes, kwargs = tree_map_only(torch.Tensor, self._as_fake, (args, kwargs))
        out = func(*fakes, **kwargs)
        if func is aten._to_copy.default and not isinstance(args[0], FakeTensor):
            out.constant = args[0]  # what was uploaded can be read back
        self._count(out)
        return out

    def _as_fake(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if isinstance(tensor, FakeTensor) else self._fake.from_tensor(tensor)

    def _count(self, out: Any) -> None:
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                storage = tensor.untyped_storage()
                self._storages.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)


def _is_on_device(args: Any, kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return (device is not None and torch.device(device).type == "cuda") or any(
        isinstance(leaf, FakeTensor) for leaf in tree_leaves((args, kwargs))
    )


def _decomposed(func: Any, args: Any, kwargs: Any) -> Any:
    """What torch makes of several operations, done one by one, so that each is counted."""
    if func is aten._fused_rms_norm.default:  # one kernel on CUDA
        return torch.empty_like(args[0]), args[0].new_empty(*args[0].shape[:-1], 1, dtype=torch.float32)
    return func.decompose(*args, **kwargs) if func.namespace == "aten" else NotImplemented


class TracedDevice:
    """A `kernels.device.Device` with `memory_bytes`, of which what is alive in the trace is not free."""

    backend: Backend = "cuda"
    torch_device = torch.device("cuda:0")
    stream_handle = 1
    runs_at_once = False

    def __init__(self, trace: Trace, memory_bytes: int, host_bytes: int = 64 << 30) -> None:
        self._trace, self._memory_bytes, self._host_bytes = trace, memory_bytes, host_bytes

    def on_stream(self) -> Any:
        return nullcontext()

    def enqueue(self, issue: Any) -> None:
        issue()

    def capture(self, issue: Any) -> Any:
        raise NotCaptured("a trace records nothing")

    def mark(self) -> Any:
        raise NotImplementedError("nothing takes time in a trace")

    def wait(self) -> None:
        pass

    def sibling(self) -> Any:
        return self

    def follow(self, other: Any) -> None:
        pass

    def free_bytes(self) -> tuple[int, int]:
        return self._memory_bytes - self._trace.live_bytes, self._host_bytes

    def empty(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self.torch_device)

    def host_memory(self, nbytes: int) -> HostMemory:
        """A tensor without memory: as much as one likes."""
        self._host_bytes -= nbytes
        return HostMemory(torch.empty(nbytes, dtype=torch.uint8, device="meta"), "traced")

    def allocation_counts(self) -> dict[str, int]:
        return {}

    def facts(self) -> dict[str, Any]:
        return {"name": "traced", "memory_bytes": self._memory_bytes, "multiprocessors": 132}


class _Launched:
    """A Triton kernel that does nothing."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: None


def _attend(q: Any, k: Any, v: Any, mask: Any, is_causal: bool, enable_gqa: bool) -> torch.Tensor:
    """Attention on the backend that is pinned, which refuses what it refuses on a GPU; torch would ask the driver."""
    allowed, half = torch.backends.cuda, q.dtype in (torch.bfloat16, torch.float16)
    if allowed.math_sdp_enabled():
        return scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, enable_gqa=enable_gqa)
    if allowed.flash_sdp_enabled() and half:
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal or mask is not None)[0]
    if mask is not None:
        mask = torch.where(mask, 0.0, float("-inf")).to(q.dtype).expand(*q.shape[:2], *mask.shape)
    if allowed.cudnn_sdp_enabled() and half:
        return aten._scaled_dot_product_cudnn_attention(q, k, v, mask, False, 0.0, is_causal)[0]
    if allowed.mem_efficient_sdp_enabled() and q.dtype != torch.float64 and not enable_gqa:
        return aten._scaled_dot_product_efficient_attention(q, k, v, mask, False, 0.0, is_causal)[0]
    raise RuntimeError("No available kernel.")


def _compiled_pointwise(*_: Any) -> Pointwise:
    return Pointwise(
        add_norm=lambda x, delta, *_: torch.empty_like(x.add_(delta)),
        rotate=lambda qk, *_: qk.new_empty(qk.shape),
        gate=lambda up: up.new_empty(len(up), up.shape[1] // 2),
        compiled=True,
    )


@contextmanager
def traced() -> Iterator[Trace]:
    """Device tensors inside are fake and counted; neither a GPU nor a driver is asked."""
    from torch.nn.attention import bias

    from kernels import paged_attention, triton_copy, triton_kv

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with pytest.MonkeyPatch.context() as patch, fake, Trace(fake) as trace:
        for module, kernel in (
            (triton_copy, "copy_pieces"),
            (triton_kv, "write_kv_kernel"),
            (paged_attention, "attend_part"),
            (paged_attention, "join_parts"),
        ):
            patch.setattr(module, kernel, _Launched())
        patch.setattr(torch, "Generator", lambda device: Generator())
        patch.setattr(attention, "scaled_dot_product_attention", _attend)
        patch.setattr(bias, "causal_lower_right", lambda *_: "the kernel's own mask")
        patch.setattr(forward, "compiled_pointwise", _compiled_pointwise)
        yield trace
