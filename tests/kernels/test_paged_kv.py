from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.paged_kv import Geometry, Pool, block_ids, run_length, sides
from kernels.shapes import LAYOUTS, Layout, ModelShape

TINY = ModelShape("tiny", layers=3, hidden=16, heads=4, kv_heads=2, head_dim=4, ffn=8, vocab=8)


def pool(layout: Layout, blocks: int = 5, block_size: int = 4) -> Pool:
    geometry = Geometry(TINY, "float32", layout, block_size)
    return Pool(torch.zeros(blocks * geometry.block_bytes, dtype=torch.uint8), geometry, blocks, "host")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_byte_of_the_arena_is_seen_once(layout: Layout) -> None:
    made = pool(layout)
    made.bytes.fill_(1)
    assert int(made.arena.sum()) == made.nbytes
    made.bytes.add_(torch.ones_like(made.bytes))
    assert made.arena.unique().tolist() == [2]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_models_view_and_the_bytes_are_the_same_memory(layout: Layout) -> None:
    made = pool(layout)
    generator = torch.Generator().manual_seed(0)
    for layer in range(TINY.layers):
        for which, tensor in enumerate(made.kv(layer)):
            assert tensor.shape == (5, 4, 2, 4)
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
            seen = made.bytes[:, layer, which].contiguous().view(torch.float32)
            assert torch.equal(seen, tensor.reshape(5, -1))


def test_layouts_lie_in_memory_as_named() -> None:
    piece, layers, blocks = 4 * 8 * 4, TINY.layers, 5
    assert pool("layer_split").geometry.strides(blocks) == (piece, 2 * blocks * piece, blocks * piece)
    assert pool("layer_joined").geometry.strides(blocks) == (2 * piece, 2 * blocks * piece, piece)
    assert pool("cross_layer").geometry.strides(blocks) == (2 * layers * piece, 2 * piece, piece)


@given(
    placement=st.sampled_from(["contiguous", "scattered", "runs-2", "runs-3"]),
    count=st.integers(0, 40),
    seed=st.integers(0, 2**31),
)
def test_no_block_is_held_twice(placement: str, count: int, seed: int) -> None:
    ids = block_ids(placement, count, 64, seed)
    assert len(ids) == count == len(set(ids.tolist()))
    assert ids.dtype == np.int64
    assert all(0 <= block < 64 for block in ids)


def test_placements_are_what_they_say() -> None:
    assert block_ids("contiguous", 4, 8, 0).tolist() == [0, 1, 2, 3]
    scattered = block_ids("scattered", 64, 64, 0)
    assert scattered.tolist() != sorted(scattered.tolist())
    runs = block_ids("runs-4", 16, 64, 0).reshape(4, 4)
    assert (np.diff(runs, axis=1) == 1).all()
    assert block_ids("scattered", 64, 64, 1).tolist() != scattered.tolist()
    assert block_ids("scattered", 64, 64, 0).tolist() == scattered.tolist()


def test_packed_is_scattered_on_the_device_and_side_by_side_on_the_host() -> None:
    assert sides("packed") == ("scattered", "contiguous")
    assert sides("runs-4") == ("runs-4", "runs-4")
    assert run_length("packed") == 1


@pytest.mark.parametrize("placement", ["", "runs", "runs-0", "runs--1", "runs-x", "random"])
def test_unknown_placements_are_refused(placement: str) -> None:
    with pytest.raises(ValueError, match=r"unknown placement .*; known: contiguous, scattered, packed, runs-K"):
        run_length(placement)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="needs 9 blocks; the pool has 8"):
        block_ids("scattered", 9, 8, 0)
    with pytest.raises(ValueError, match="runs of 3 do not fit"):
        block_ids("runs-3", 8, 8, 0)
    geometry = Geometry(TINY, "float32", "layer_split", 4)
    with pytest.raises(ValueError, match=r"needs .* bytes; the arena has 10"):
        Pool(torch.zeros(10, dtype=torch.uint8), geometry, 5, "host")
    with pytest.raises(ValueError, match="uint8"):
        Pool(torch.zeros(10_000, dtype=torch.int16), geometry, 5, "host")
    with pytest.raises(ValueError, match="block_size 0"):
        Geometry(TINY, "float32", "layer_split", 0)
    with pytest.raises(ValueError, match="unknown layout"):
        Geometry(TINY, "float32", "diagonal", 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown dtype"):
        Geometry(TINY, "int4", "layer_split", 4)
