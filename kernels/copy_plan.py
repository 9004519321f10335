"""Copy plan: block ids to descriptors (source address, destination address, bytes), with numpy and no Python loop.

A plan is one swap in one direction. Its order is the order in which engines copy: K then V by layer, block by block
(PagedAttention's artifact, `csrc/cache_kernels.cu: swap_blocks`); one pass over the blocks where layers lie together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.paged_kv import Pool

Direction = Literal["swap_out", "swap_in"]
Addresses = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class CopyPlan:
    """The descriptors of one swap, in one direction.

    Attributes
    ----------
    src, dst : numpy.ndarray
        uint64 addresses, shape (descriptors,).
    sizes : numpy.ndarray
        uint64 bytes of each descriptor, shape (descriptors,).
    src_arena, dst_arena : torch.Tensor
        The memory the addresses lie in; held so that it outlives the plan.
    direction : {"swap_out", "swap_in"}
        Device to host, or host to device: from the pools, never said twice.
    behind_writes : bool
        What the stream holds before the copy may write the source, so that it must be read in the stream's order.
        Blocks of the device always are; those of the host are at rest unless a swap out comes before the swap in.
    """

    src: Addresses
    dst: Addresses
    sizes: Addresses
    src_arena: torch.Tensor
    dst_arena: torch.Tensor
    direction: Direction
    behind_writes: bool = True

    @property
    def descriptors(self) -> int:
        """Number of copies."""
        return len(self.sizes)

    @property
    def nbytes(self) -> int:
        """Payload bytes of the plan."""
        return int(self.sizes.sum())

    @property
    def fragment_bytes(self) -> int | None:
        """Bytes of every descriptor; None if they differ (a merged plan) or there are none."""
        if not len(self.sizes) or (self.sizes != self.sizes[0]).any():
            return None
        return int(self.sizes[0])

    def merged(self) -> CopyPlan:
        """The same bytes with neighbours joined: descriptors that follow each other in source and destination alike."""
        if self.descriptors == 0:
            return self
        order = np.argsort(self.src, kind="stable")
        src, dst, sizes = self.src[order], self.dst[order], self.sizes[order]
        joins = (src[:-1] + sizes[:-1] == src[1:]) & (dst[:-1] + sizes[:-1] == dst[1:])
        first = np.flatnonzero(np.concatenate(([True], ~joins)))
        return replace(self, src=src[first], dst=dst[first], sizes=np.add.reduceat(sizes, first))


def build(
    src: Pool, src_ids: NDArray[np.int64], dst: Pool, dst_ids: NDArray[np.int64], behind_swap_out: bool = False
) -> CopyPlan:
    """The plan that copies blocks `src_ids` of one pool to blocks `dst_ids` of another, pair by pair.

    Parameters
    ----------
    behind_swap_out : bool
        The same stream swaps out to these blocks of the host before it swaps them in.

    Raises
    ------
    ValueError
        If the pools differ in geometry or lie in the same memory, ids are of unequal number or out of range, or a
        destination block occurs twice.
    """
    _check(src, src_ids, dst, dst_ids)
    sizes = np.full(_descriptors(src, len(src_ids)), _fragment_bytes(src), dtype=np.uint64)
    return CopyPlan(
        src=_addresses(src, src_ids),
        dst=_addresses(dst, dst_ids),
        sizes=sizes,
        src_arena=src.arena,
        dst_arena=dst.arena,
        direction="swap_out" if src.memory == "device" else "swap_in",
        behind_writes=src.memory == "device" or behind_swap_out,
    )


def _check(src: Pool, src_ids: NDArray[np.int64], dst: Pool, dst_ids: NDArray[np.int64]) -> None:
    if src.geometry != dst.geometry:
        raise ValueError(f"pools differ: {src.geometry} and {dst.geometry}")
    if src.memory == dst.memory:
        raise ValueError(f"both pools are {src.memory} memory; a swap crosses the link")
    if len(src_ids) != len(dst_ids):
        raise ValueError(f"{len(src_ids)} source blocks for {len(dst_ids)} destination blocks")
    for pool, ids in ((src, src_ids), (dst, dst_ids)):
        if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < pool.blocks):
            raise ValueError(f"block ids {ids.min()} to {ids.max()} in a {pool.memory} pool of {pool.blocks} blocks")
    if len(np.unique(dst_ids)) != len(dst_ids):
        raise ValueError("a destination block occurs twice: the result would depend on the order of copies")


def _fragment_bytes(pool: Pool) -> int:
    shape, layout = pool.geometry.shape, pool.geometry.layout
    return pool.geometry.block_bytes // shape.fragments_per_block(layout)


def _descriptors(pool: Pool, blocks: int) -> int:
    return blocks * pool.geometry.shape.fragments_per_block(pool.geometry.layout)


def _addresses(pool: Pool, ids: NDArray[np.int64]) -> Addresses:
    """Address of each fragment, in copy order: (layer, K or V, block), (layer, block) or (block)."""
    block, layer, kv = pool.geometry.strides(pool.blocks)
    offsets = ids * block
    if pool.geometry.layout == "layer_split":
        offsets = np.arange(2, dtype=np.int64)[:, None] * kv + offsets
    if pool.geometry.layout != "cross_layer":
        layers = np.arange(pool.geometry.shape.layers, dtype=np.int64) * layer
        offsets = layers.reshape(-1, *(1,) * offsets.ndim) + offsets
    return offsets.reshape(-1).astype(np.uint64) + np.uint64(pool.arena.data_ptr())
