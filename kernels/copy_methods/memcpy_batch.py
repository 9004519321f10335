"""memcpy_batch: all descriptors in one `cuMemcpyBatchAsync`.

vLLM's `swap_blocks_batch` (0.20 and later) and Dynamo do so. The driver still submits every descriptor (about 0.5 us
each on an H100, vllm#48434), but without a call for each. Where the driver has no such call the method is unavailable;
it never falls back to a loop, as vLLM silently does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels import memcpy_batch_binding as binding
from kernels.copy_plan import CopyPlan
from kernels.device import Device
from kernels.pieces import Descriptors


@dataclass(frozen=True, eq=False)
class BatchIssue:
    """Enqueues the plan.

    Attributes
    ----------
    copies : int
        Copies that the batch asks for.
    calls : int
        Driver calls an issue makes: 1, or 0 for an empty plan.
    flags : int
        `CUmemcpyFlags` of every copy.
    """

    copies: int
    calls: int
    flags: int
    _call: Callable[[], None]
    _arrays: Descriptors  # the driver reads these addresses

    def __call__(self) -> None:
        """Enqueue; `DriverError` if the driver refuses the batch."""
        self._call()


def unavailable(device: Device) -> str | None:
    """Needs CUDA and a driver of 12.8 or later."""
    if device.backend == "cpu":
        return "cuMemcpyBatchAsync is a call of the CUDA driver"
    return binding.unavailable()


def prepare(plan: CopyPlan, device: Device, flags: int = 0) -> BatchIssue:
    """Bind the call to the plan's arrays, on the device's own stream; an empty plan makes no call."""
    arrays = Descriptors(*(np.ascontiguousarray(part, dtype=np.uint64) for part in (plan.src, plan.dst, plan.sizes)))
    if not len(arrays):
        return BatchIssue(0, 0, flags, lambda: None, arrays)
    call = binding.batch_copy(arrays, plan.direction, device.stream_handle, flags, plan.behind_writes)
    return BatchIssue(len(arrays), 1, flags, call, arrays)
