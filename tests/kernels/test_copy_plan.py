from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import copy_plan
from kernels.copy_plan import CopyPlan
from kernels.paged_kv import Geometry, Pool
from kernels.shapes import ModelShape
from tests.kernels.plans import Swap, random_bytes, swaps

TWO_LAYERS = ModelShape("two", layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, ffn=8, vocab=8)


def touched(plan: CopyPlan, side: str) -> np.ndarray:
    """How often each byte of an arena lies in a descriptor."""
    arena = plan.src_arena if side == "src" else plan.dst_arena
    times = np.zeros(arena.numel(), dtype=np.int64)
    starts = getattr(plan, side) - np.uint64(arena.data_ptr())
    for start, size in zip(starts.tolist(), plan.sizes.tolist(), strict=True):
        times[start : start + size] += 1
    return times


def held(pool: Pool, ids: np.ndarray) -> np.ndarray:
    """1 for each byte of the blocks, through the pool's view."""
    mark = replace(pool, arena=torch.zeros_like(pool.arena))
    mark.bytes[torch.from_numpy(ids)] = 1
    return mark.arena.numpy().astype(np.int64)


def carry_out(plan: CopyPlan) -> None:
    src, dst = plan.src_arena.numpy(), plan.dst_arena.numpy()
    base_src, base_dst = np.uint64(plan.src_arena.data_ptr()), np.uint64(plan.dst_arena.data_ptr())
    for s, d, n in zip(
        (plan.src - base_src).tolist(), (plan.dst - base_dst).tolist(), plan.sizes.tolist(), strict=True
    ):
        dst[d : d + n] = src[s : s + n]


@given(swap=swaps(), merge=st.booleans())
def test_every_byte_of_every_block_is_in_exactly_one_descriptor(swap: Swap, merge: bool) -> None:
    plan = swap.plan().merged() if merge else swap.plan()
    assert (touched(plan, "src") == held(swap.src, swap.src_ids)).all()
    assert (touched(plan, "dst") == held(swap.dst, swap.dst_ids)).all()
    assert plan.nbytes == len(swap.src_ids) * swap.src.geometry.block_bytes


@given(swap=swaps(), merge=st.booleans())
def test_a_plan_moves_blocks_and_nothing_else(swap: Swap, merge: bool) -> None:
    expected = swap.expected()
    carry_out(swap.plan().merged() if merge else swap.plan())
    assert torch.equal(swap.dst.arena, expected)


@given(swap=swaps())
def test_a_round_trip_restores_the_pool(swap: Swap) -> None:
    before = swap.src.arena.clone()
    carry_out(swap.plan())
    swap.src.bytes[torch.from_numpy(swap.src_ids)] = 0
    carry_out(swap.back().plan())
    assert torch.equal(swap.src.arena, before)


@given(swap=swaps())
def test_raw_descriptors_are_the_layouts_fragments(swap: Swap) -> None:
    plan, geometry = swap.plan(), swap.src.geometry
    assert plan.descriptors == len(swap.src_ids) * geometry.shape.fragments_per_block(geometry.layout)
    fragment = geometry.shape.fragment_bytes(geometry.layout, geometry.block_size, geometry.dtype)
    assert set(plan.sizes.tolist()) <= {fragment}
    assert plan.fragment_bytes in ({fragment} if plan.descriptors else {None})


@given(swap=swaps())
@settings(max_examples=50)
def test_merged_leaves_no_neighbours(swap: Swap) -> None:
    plan = swap.plan().merged()
    ends = set(zip((plan.src + plan.sizes).tolist(), (plan.dst + plan.sizes).tolist(), strict=True))
    assert not ends & set(zip(plan.src.tolist(), plan.dst.tolist(), strict=True))
    assert plan.descriptors <= swap.plan().descriptors


@given(swap=swaps())
@settings(max_examples=20)
def test_direction_follows_the_pools(swap: Swap) -> None:
    assert swap.plan().direction == ("swap_out" if swap.src.memory == "device" else "swap_in")
    assert swap.back().plan().direction != swap.plan().direction


def two_pools(layout: str = "layer_split", blocks: int = 4) -> tuple[Pool, Pool]:
    geometry = Geometry(TWO_LAYERS, "float32", layout, 2)  # type: ignore[arg-type]
    arenas = [random_bytes(blocks * geometry.block_bytes, seed) for seed in (0, 1)]
    return Pool(arenas[0], geometry, blocks, "device"), Pool(arenas[1], geometry, blocks, "host")


def test_order_is_k_then_v_by_layer() -> None:
    device, host = two_pools()
    plan = copy_plan.build(device, np.array([3, 1]), host, np.array([0, 2]))
    piece = 2 * 8 * 4
    offsets = [((layer * 2 + kv) * 4 + block) * piece for layer in (0, 1) for kv in (0, 1) for block in (3, 1)]
    assert (plan.src - np.uint64(device.arena.data_ptr())).tolist() == offsets


def test_blocks_side_by_side_merge_into_one_copy() -> None:
    device, host = two_pools("cross_layer")
    plan = copy_plan.build(device, np.arange(4), host, np.arange(4))
    assert plan.descriptors == 4
    assert plan.merged().descriptors == 1
    split = copy_plan.build(*sum(((pool, np.arange(3)) for pool in two_pools()), ()))
    assert (split.descriptors, split.merged().descriptors) == (12, 4)


def test_an_empty_plan_is_a_plan() -> None:
    device, host = two_pools()
    plan = copy_plan.build(device, np.array([], dtype=np.int64), host, np.array([], dtype=np.int64))
    assert (plan.descriptors, plan.nbytes, plan.fragment_bytes, plan.merged().descriptors) == (0, 0, None, 0)


@pytest.mark.parametrize(
    ("src_ids", "dst_ids", "message"),
    [
        ([0, 1], [0], "2 source blocks for 1"),
        ([0, 4], [0, 1], "block ids 0 to 4 in a device pool of 4"),
        ([0, 1], [-1, 1], "block ids -1 to 1 in a host pool of 4"),
        ([0, 1], [2, 2], "occurs twice"),
    ],
)
def test_impossible_ids_are_refused(src_ids: list[int], dst_ids: list[int], message: str) -> None:
    device, host = two_pools()
    with pytest.raises(ValueError, match=message):
        copy_plan.build(device, np.array(src_ids), host, np.array(dst_ids))


def test_unlike_pools_are_refused() -> None:
    (device, host), (_, joined) = two_pools(), two_pools("layer_joined")
    one = np.array([0])
    with pytest.raises(ValueError, match="pools differ"):
        copy_plan.build(device, one, joined, one)
    with pytest.raises(ValueError, match="both pools are host memory"):
        copy_plan.build(host, one, host, one)
