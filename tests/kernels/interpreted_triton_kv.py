"""The kernel that writes K and V, in Triton's interpreter. `test_triton_kv.py` runs it.

TRITON_INTERPRET must be set before Triton is imported, so these tests have a process of their own.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.kv_writer import index_put
from kernels.paged_kv import Geometry, Pool
from kernels.shapes import LAYOUTS, Layout, ModelShape
from kernels.triton_kv import warm_up, write_kv

BLOCKS = 12


def pool(heads: int, kv_heads: int, head_dim: int, dtype: str, layout: Layout, block_size: int) -> Pool:
    shape = ModelShape(
        "any", layers=2, hidden=8, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=8, vocab=8, norm="rms"
    )
    geometry = Geometry(shape, dtype, layout, block_size)
    return Pool(torch.full((geometry.block_bytes * BLOCKS,), 0x5A, dtype=torch.uint8), geometry, BLOCKS, "device")


def random_bits(*size: int, dtype: torch.dtype) -> torch.Tensor:
    """Any bits, NaN among them: they must arrive as they are."""
    element = torch.empty(0, dtype=dtype).element_size()
    return torch.randint(0, 256, (*size, element), dtype=torch.uint8).view(dtype).squeeze(-1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64", "float8_e4m3fn"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block_size", "tokens"), [(4, 2, 8, 4, 29), (3, 3, 24, 1, 11), (1, 1, 5, 16, 100)]
)
def test_every_bit_lands_in_its_slot_and_nowhere_else(
    heads: int, kv_heads: int, head_dim: int, block_size: int, tokens: int, dtype: str, layout: Layout
) -> None:
    torch.manual_seed(tokens)
    element = getattr(torch, dtype)
    ours, expected = (pool(heads, kv_heads, head_dim, dtype, layout, block_size) for _ in range(2))
    slots = np.random.default_rng(tokens).permutation(BLOCKS * block_size)[:tokens]
    slot = torch.from_numpy(slots // block_size), torch.from_numpy(slots % block_size)
    tokens = len(slots)
    qkv = random_bits(tokens, heads + 2 * kv_heads, head_dim, dtype=element)
    new = qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
    warm_up(ours.kv(1), heads)
    assert (ours.arena == 0x5A).all()
    write_kv(ours.kv(1), slot, new)
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[element.itemsize]
    caches = tuple(cache.view(integer) for cache in expected.kv(1))
    index_put(caches, slot, tuple(values.view(integer) for values in new))  # type: ignore[arg-type]
    assert torch.equal(ours.arena, expected.arena)


def test_a_width_of_many_tiles() -> None:
    ours, expected = (pool(40, 40, 128, "float32", "cross_layer", 2) for _ in range(2))
    slot = torch.tensor([3, 9, 3]), torch.tensor([1, 0, 0])
    new = torch.randn(3, 40, 128), torch.randn(3, 40, 128)
    write_kv(ours.kv(0), slot, new)
    index_put(expected.kv(0), slot, new)
    assert torch.equal(ours.arena, expected.arena)


def test_blocks_behind_two_to_the_31st_element_are_reached() -> None:
    """Only their pages are ever touched."""
    distance = 2**28 + 16
    flat = torch.from_numpy(np.zeros(10 * distance, dtype=np.int8))
    caches = tuple(flat.as_strided((9, 1, 1, 16), (distance, 16, 16, 1), start) for start in (0, 64))
    new = tuple(torch.arange(16, dtype=torch.int8).view(1, 1, 16) + start for start in (1, 50))
    write_kv(caches, (torch.tensor([8]), torch.tensor([0])), new)  # type: ignore[arg-type]
    for cache, values in zip(caches, new, strict=True):
        assert torch.equal(cache[8, 0], values[0])
