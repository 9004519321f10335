"""What writes a layer's K and V into the pool's blocks: one Triton kernel for both, or `index_put_` for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernels.device import Device
from kernels.triton_probe import no_kernels

KV = tuple[torch.Tensor, torch.Tensor]
Slot = tuple[torch.Tensor, torch.Tensor]


def index_put(caches: KV, slot: Slot, new: KV) -> None:
    """Write K and V by torch's own scatter, one kernel each."""
    for cache, values in zip(caches, new, strict=True):
        cache.index_put_(slot, values)


@dataclass(frozen=True)
class KvWriter:
    """A way to write K and V.

    Attributes
    ----------
    name : {"triton", "index_put"}
    refusal : str or None
        Why it is not the Triton kernel, where it is not.
    write : callable
        (caches, slot, new): views of a layer's K and V, (blocks, block_size, kv_heads, head_dim); block and offset of
        each token, int64, (tokens,); K and V of the tokens, (tokens, kv_heads, head_dim), of which only a token's own
        elements must be contiguous.
    """

    name: str = "index_put"
    refusal: str | None = None
    write: Callable[[KV, Slot, KV], None] = index_put

    def warm_up(self, caches: KV, heads: int) -> None:
        """Compile and load for what a pass of a model with `heads` query heads writes, and write nothing."""
        if self.name == "triton":
            from kernels import triton_kv

            triton_kv.warm_up(caches, heads)


def usable_writer(device: Device) -> KvWriter:
    """The Triton kernel where it runs, else `index_put_` and the reason."""
    if reason := no_kernels(device):
        return KvWriter(refusal=reason)
    from kernels import triton_kv

    return KvWriter("triton", None, triton_kv.write_kv)
