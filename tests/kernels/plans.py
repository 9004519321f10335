"""Pairs of small pools and plans between them, drawn by hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels import copy_plan
from kernels.copy_plan import CopyPlan
from kernels.paged_kv import Geometry, Pool, block_ids
from kernels.shapes import LAYOUTS, ModelShape


@dataclass(frozen=True)
class Swap:
    """Two pools of random bytes, and the blocks to carry from `src` to `dst`."""

    src: Pool
    src_ids: NDArray[np.int64]
    dst: Pool
    dst_ids: NDArray[np.int64]

    def plan(self) -> CopyPlan:
        return copy_plan.build(self.src, self.src_ids, self.dst, self.dst_ids)

    def back(self) -> Swap:
        return Swap(self.dst, self.dst_ids, self.src, self.src_ids)

    def expected(self) -> torch.Tensor:
        """The destination's arena after the swap, worked out through the pools' views and not through a plan."""
        after = Pool(self.dst.arena.clone().cpu(), self.dst.geometry, self.dst.blocks, "host")
        source = Pool(self.src.arena.cpu(), self.src.geometry, self.src.blocks, "host")
        after.bytes[torch.from_numpy(self.dst_ids)] = source.bytes[torch.from_numpy(self.src_ids)]
        return after.arena


def random_bytes(count: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8))


@st.composite
def swaps(draw: st.DrawFn, max_blocks: int = 12) -> Swap:
    shape = ModelShape(
        "drawn",
        layers=draw(st.integers(1, 4)),
        hidden=8,
        heads=2,
        kv_heads=draw(st.sampled_from([1, 2])),
        head_dim=draw(st.sampled_from([1, 3, 8])),
        ffn=8,
        vocab=8,
    )
    geometry = Geometry(
        shape,
        draw(st.sampled_from(["float8_e4m3fn", "bfloat16", "float32"])),
        draw(st.sampled_from(LAYOUTS)),
        draw(st.integers(1, 5)),
    )
    blocks = draw(st.integers(1, max_blocks))
    count = draw(st.integers(0, blocks // 2 if blocks > 1 else 1))
    seed = draw(st.integers(0, 2**31))
    memories = ("device", "host") if draw(st.booleans()) else ("host", "device")
    ids = [
        block_ids(
            draw(st.sampled_from(["contiguous", "scattered", "runs-2"])) if blocks > 3 else "scattered",
            count,
            blocks,
            seed + side,
        )
        for side in (0, 1)
    ]
    pools = [
        Pool(random_bytes(blocks * geometry.block_bytes, seed + 2 + side), geometry, blocks, memory)
        for side, memory in enumerate(memories)
    ]  # type: ignore[arg-type]
    return Swap(pools[0], ids[0], pools[1], ids[1])
