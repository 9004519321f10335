"""Paged attention in Triton's interpreter against a dense float32 reference. `test_paged_attention.py` runs it.

TRITON_INTERPRET must be set before Triton is imported, so these tests have a process of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from kernels.paged_attention import PagedAttention
from kernels.paged_kv import Geometry, Pool
from kernels.shapes import LAYOUTS, Layout, ModelShape

BLOCKS = 220


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One query, (heads, head_dim), over (context, kv_heads, head_dim), in float64."""
    k, v = (x.double().repeat_interleave(len(q) // k.shape[1], 1) for x in (k, v))
    weights = torch.softmax(torch.einsum("hd,thd->ht", q.double(), k) * q.shape[1] ** -0.5, -1)
    return torch.einsum("ht,thd->hd", weights, v)


def check(
    contexts: Sequence[int],
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    block_size: int = 4,
    layout: Layout = "cross_layer",
    programs: int = 1,
) -> PagedAttention:
    shape = ModelShape("any", layers=2, hidden=8, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=8, vocab=8)
    geometry = Geometry(shape, "float32", layout, block_size)
    pool = Pool(torch.zeros(geometry.block_bytes * BLOCKS, dtype=torch.uint8), geometry, BLOCKS, "device")
    torch.manual_seed(0)
    k, v = pool.kv(1)
    for cache in (k, v):
        cache.fill_(torch.nan)  # whatever lies past a sequence's end must not matter
    counts = [-(-context // block_size) for context in contexts]
    held = np.split(np.random.default_rng(1).permutation(BLOCKS)[: sum(counts)], np.cumsum(counts)[:-1])
    table = torch.zeros(len(contexts), max(counts), dtype=torch.int64)
    qkv = torch.randn(len(contexts), heads + kv_heads, head_dim)
    q, expected = qkv[:, :heads], []
    for row, (context, ids) in enumerate(zip(contexts, held, strict=True)):
        table[row, : len(ids)] = torch.from_numpy(ids)
        keys, values = (3 * torch.randn(context, kv_heads, head_dim) for _ in range(2))
        at = torch.arange(context)
        for cache, new in ((k, keys), (v, values)):
            cache[torch.from_numpy(ids)[at // block_size], at % block_size] = new
        expected.append(dense(q[row], keys, values))
    lengths = torch.tensor(contexts, dtype=torch.int32)
    paged = PagedAttention.of(table, lengths, heads, kv_heads, head_dim, programs)
    ours = paged(q, (k, v)).view(len(contexts), heads, head_dim)
    torch.testing.assert_close(ours.double(), torch.stack(expected), rtol=2e-5, atol=2e-5)
    return paged


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block_size", [1, 4, 24])
def test_any_block_size_and_layout(block_size: int, layout: Layout) -> None:
    check([70, 1, 33], block_size=block_size, layout=layout)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (16, 1), (40, 2)])
def test_any_group_of_heads(heads: int, kv_heads: int) -> None:
    check([66, 5], heads=heads, kv_heads=kv_heads)


@pytest.mark.parametrize("head_dim", [8, 80, 128])
def test_any_head(head_dim: int) -> None:
    check([66], head_dim=head_dim)


@pytest.mark.parametrize("programs", [1, 4, 6, 1000])
def test_a_context_split_over_programs(programs: int) -> None:
    """Also where some parts of a short sequence hold nothing."""
    paged = check([300, 65, 1, 64, 128], programs=programs)
    assert paged.part.shape[2] == {1: 1, 4: 1, 6: 1, 1000: 5}[programs]


def test_one_long_sequence_is_split_as_far_as_programs_are_wanted() -> None:
    assert check([800], programs=6).part.shape[2] == 3
