"""Pools of KV blocks: how a block lies in memory, which blocks a sequence holds, and views for the model.

A pool is a stretch of one arena (raw bytes of the GPU or of the host). Whatever its layout, it is seen through one
strided tensor, `Pool.bytes`, of shape (blocks, layers, 2, piece): block, layer, K or V, and the bytes of
`block_size` tokens, which are contiguous in every layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from kernels.shapes import Layout, ModelShape, check_layout, dtype_bytes

Memory = Literal["device", "host"]


@dataclass(frozen=True)
class Geometry:
    """What two pools must share for blocks to be copied between them.

    Attributes
    ----------
    shape : ModelShape
        The model whose K and V the blocks hold, with the number of layers to hold.
    dtype : str
        Element type of K and V.
    layout : Layout
        How a block lies in memory.
    block_size : int
        Tokens a block.
    """

    shape: ModelShape
    dtype: str
    layout: Layout
    block_size: int

    def __post_init__(self) -> None:
        check_layout(self.layout)
        if self.block_size < 1:
            raise ValueError(f"block_size {self.block_size}; it must be 1 token or more")
        dtype_bytes(self.dtype)

    @property
    def piece_bytes(self) -> int:
        """Bytes of one block's K (or V) in one layer: contiguous in every layout."""
        return self.block_size * self.shape.kv_width * dtype_bytes(self.dtype)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers, K and V."""
        return 2 * self.shape.layers * self.piece_bytes

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens; the last one may be part empty."""
        return -(-tokens // self.block_size)

    def strides(self, blocks: int) -> tuple[int, int, int]:
        """Bytes from one block, layer, or K to V to the next, in a pool of `blocks` blocks."""
        piece, layers = self.piece_bytes, self.shape.layers
        if self.layout == "layer_split":  # [layer][K, V][block]
            return piece, 2 * blocks * piece, blocks * piece
        if self.layout == "layer_joined":  # [layer][block][K, V]
            return 2 * piece, 2 * blocks * piece, piece
        return 2 * layers * piece, 2 * piece, piece  # [block][layer][K, V]


@dataclass(frozen=True, eq=False)
class Pool:
    """Blocks of KV cache in one memory.

    Attributes
    ----------
    arena : torch.Tensor
        uint8, one-dimensional, contiguous; the pool is its first `geometry.block_bytes * blocks` bytes.
    memory : {"device", "host"}
        Which side of the link the arena is on. On a CPU backend both are ordinary memory and the name is a role.
    """

    arena: torch.Tensor
    geometry: Geometry
    blocks: int
    memory: Memory

    def __post_init__(self) -> None:
        if self.arena.dtype != torch.uint8 or self.arena.dim() != 1 or not self.arena.is_contiguous():
            raise ValueError("an arena is a one-dimensional, contiguous uint8 tensor")
        if self.nbytes > self.arena.numel():
            raise ValueError(
                f"a pool of {self.blocks} blocks needs {self.nbytes:,} bytes; the arena has {self.arena.numel():,}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the pool."""
        return self.blocks * self.geometry.block_bytes

    @property
    def bytes(self) -> torch.Tensor:
        """uint8 view of shape (blocks, layers, 2, piece_bytes), whatever the layout."""
        size = (self.blocks, self.geometry.shape.layers, 2, self.geometry.piece_bytes)
        return self.arena.as_strided(size, (*self.geometry.strides(self.blocks), 1))

    def kv(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of one layer as the model writes them.

        Returns
        -------
        k, v : torch.Tensor
            Views of shape (blocks, block_size, kv_heads, head_dim) in the pool's dtype.
        """
        geometry = self.geometry
        typed = self.arena[: self.nbytes].view(getattr(torch, geometry.dtype))
        element = dtype_bytes(geometry.dtype)
        block, layers, kv = (stride // element for stride in geometry.strides(self.blocks))
        size = (self.blocks, geometry.block_size, geometry.shape.kv_heads, geometry.shape.head_dim)
        inner = (geometry.shape.kv_width, geometry.shape.head_dim, 1)
        k, v = (typed.as_strided(size, (block, *inner), layer * layers + which * kv) for which in (0, 1))
        return k, v


def block_ids(placement: str, count: int, blocks: int, seed: int) -> np.ndarray:
    """Which blocks of a pool a sequence holds, in token order.

    Parameters
    ----------
    placement : str
        "contiguous": 0, 1, 2 ... "scattered": a random draw without repetition, as the paper's artifact does
        (`random.sample` on both sides). "runs-K": random runs of K neighbours.
    count, blocks : int
        Blocks the sequence needs and blocks the pool has.

    Returns
    -------
    numpy.ndarray
        int64, shape (count,), no block twice.
    """
    if count > blocks:
        raise ValueError(f"the sequence needs {count:,} blocks; the pool has {blocks:,}")
    run = run_length(placement)
    if run == 0:
        return np.arange(count, dtype=np.int64)
    starts = np.random.default_rng(seed).permutation(blocks // run)[: -(-count // run)]
    if len(starts) * run < count:
        raise ValueError(f"{placement}: {count:,} blocks in runs of {run} do not fit a pool of {blocks:,} blocks")
    ids = starts[:, None] * run + np.arange(run)
    return ids.reshape(-1)[:count].astype(np.int64)


def sides(placement: str) -> tuple[str, str]:
    """Placement on the device and on the host: the same on both, as in the paper, unless it is "packed".

    Packed blocks are scattered on the device and side by side on the host, as engines store them that own the host's
    memory by the chunk (LMCache, FlexKV).
    """
    return ("scattered", "contiguous") if placement == "packed" else (placement, placement)


def run_length(placement: str) -> int:
    """Neighbours that a run of `placement` has on both sides: 1 if scattered or packed, K for runs-K, 0 for no end."""
    if placement in ("contiguous", "scattered", "packed"):
        return 0 if placement == "contiguous" else 1
    kind, _, length = placement.partition("-")
    if kind == "runs" and length.isdecimal() and int(length) >= 1:
        return int(length)
    raise ValueError(f"unknown placement {placement!r}; known: contiguous, scattered, packed, runs-K (such as runs-8)")
