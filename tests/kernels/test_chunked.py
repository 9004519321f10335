"""Prefill in chunks and behind a cached prefix: the same logits, K and V as one uninterrupted forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels.attention import attend_blocks, pinned, usable_attention
from kernels.chunked import chunks, prepare_chunks
from kernels.sequences import Run, Sequences, block_table, runs, slots
from kernels.shapes import LAYOUTS, Layout, ModelShape
from kernels.transformer import prepare
from kernels.weights import random_weights
from tests.kernels.hf_weights import SMALL
from tests.kernels.one_forward import assert_one_forward, expected_logits, texts, weights_of
from tests.kernels.test_transformer import CPU, UNTOUCHED, assert_close, pool_for, prompts


@pytest.fixture(params=list(SMALL))
def shape(request: pytest.FixtureRequest) -> ModelShape:
    return SMALL[request.param]


def parts(sequences: Sequences, cached: Sequence[int]) -> tuple[Sequences, Sequences]:
    """The first `cached` tokens of each sequence, and the rest behind them."""
    begun = [number for number, count in enumerate(cached) if count]
    before = Sequences(
        torch.cat([text[:count] for text, count in zip(texts(sequences), cached, strict=True)]),
        [cached[number] for number in begun],
        [sequences.block_ids[number] for number in begun],
    )
    after = replace(
        sequences,
        token_ids=torch.cat([text[count:] for text, count in zip(texts(sequences), cached, strict=True)]),
        lengths=[length - count for length, count in zip(sequences.lengths, cached, strict=True)],
        cached=cached,
    )
    return before, after


@pytest.mark.parametrize(
    ("chunk_tokens", "dtype"), [*((size, torch.float64) for size in (1, 4, 5, 22, 100)), (5, torch.float32)], ids=str
)
def test_chunks_of_any_size_give_what_one_forward_does(
    shape: ModelShape, chunk_tokens: int, dtype: torch.dtype
) -> None:
    pool, sequences = pool_for(shape, dtype), prompts(shape, [13, 1, 9])
    chunked = prepare_chunks(CPU, weights_of(shape, dtype), pool, sequences, chunk_tokens)
    assert len(chunked.chunks) == -(-23 // chunk_tokens)
    assert chunked.attention == "FLASH_ATTENTION"
    assert_one_forward(chunked.issue(), pool, sequences)


@pytest.mark.parametrize(
    ("cached", "layout"), list(zip([(8, 4, 8), (5, 0, 12), (12, 5, 1)], LAYOUTS, strict=True)), ids=str
)
def test_a_cached_prefix_is_attended_to(shape: ModelShape, cached: tuple[int, ...], layout: Layout) -> None:
    pool, sequences = pool_for(shape, torch.float64, layout), prompts(shape, [13] * 3)
    before, after = parts(sequences, cached)
    prepare(CPU, weights_of(shape), pool, before).fill()
    assert_one_forward(prepare(CPU, weights_of(shape), pool, after).issue(), pool, sequences)


def test_every_attention_name_gives_the_same(shape: ModelShape) -> None:
    for attention in ("MATH", "FLASH_ATTENTION", "FLASH_ATTENTION+REPEATED_KV"):
        pool, sequences = pool_for(shape, torch.float64), prompts(shape, [9, 4])
        chunked = prepare_chunks(CPU, weights_of(shape), pool, sequences, 3, attention)
        assert chunked.attention == attention
        assert_one_forward(chunked.issue(), pool, sequences)


def test_sequences_may_share_the_blocks_of_a_cached_prefix() -> None:
    shape = SMALL["llama"]
    weights, pool = weights_of(shape), pool_for(shape, torch.float64)
    prefix, rest = prompts(shape, [8]), torch.arange(10)
    prepare(CPU, weights, pool, prefix).fill()
    before = pool.bytes[torch.from_numpy(prefix.block_ids[0])].clone()
    free = np.setdiff1d(np.arange(pool.blocks), prefix.block_ids[0])
    tables = [np.concatenate((prefix.block_ids[0], own)) for own in (free[:1], free[1:3])]
    logits = prepare(CPU, weights, pool, Sequences(rest, [4, 6], tables, cached=[8, 8])).issue()
    for row, own in zip(logits, rest.split([4, 6]), strict=True):
        assert_close(row, expected_logits(shape, torch.cat((prefix.token_ids, own))))
    assert torch.equal(pool.bytes[torch.from_numpy(prefix.block_ids[0])], before)


def test_fill_writes_the_same_bytes_and_makes_no_logits(shape: ModelShape) -> None:
    weights, pool, sequences = (
        random_weights(shape, "float32", CPU),
        pool_for(shape, torch.float32),
        prompts(shape, [9]),
    )
    chunked = prepare_chunks(CPU, weights, pool, sequences, 4)
    chunked.issue()
    before = pool.arena.clone()
    pool.arena.fill_(UNTOUCHED)
    chunked.fill()
    assert torch.equal(pool.arena, before)


def test_only_a_chunk_where_a_sequence_ends_runs_the_head() -> None:
    shape = SMALL["llama"]
    weights, pool = random_weights(shape, "float32", CPU), pool_for(shape, torch.float32)
    chunked = prepare_chunks(CPU, weights, pool, prompts(shape, [9, 3]), 4)
    assert [chunk.forward.last.tolist() for chunk in chunked.chunks] == [[], [], [0, 3]]


def test_a_chunk_is_cut_where_the_budget_ends() -> None:
    sequences = Sequences(torch.arange(12), [6, 1, 5], [np.array([7]), np.array([8]), np.array([9])], cached=[0, 2, 3])
    cut = chunks(sequences, 5)
    assert [list(chunk.sequences.lengths) for chunk in cut] == [[5], [1, 1, 3], [2]]
    assert [list(chunk.sequences.cached) for chunk in cut] == [[0], [5, 2, 3], [6]]
    assert [chunk.ended for chunk in cut] == [(False,), (True, True, False), (True,)]
    assert [chunk.sequences.token_ids.tolist() for chunk in cut] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert [[ids.tolist() for ids in chunk.sequences.block_ids] for chunk in cut] == [[[7]], [[7], [8], [9]], [[9]]]


def test_runs_slots_and_tables_count_what_is_cached() -> None:
    sequences = Sequences(
        torch.arange(5), [2, 2, 1], [np.array([5, 6]), np.array([7, 8]), np.array([9])], cached=[3, 3, 0]
    )
    assert runs(sequences.lengths, sequences.cached) == (Run(0, 2, 2, 3), Run(4, 1, 1, 0))
    at = slots(sequences, 4)
    assert at.positions.tolist() == [3, 4, 3, 4, 0]
    assert at.blocks.tolist() == [5, 6, 7, 8, 9]
    assert at.offsets.tolist() == [3, 0, 3, 0, 0]
    assert block_table(sequences, 4).tolist() == [[5, 6], [7, 8], [9, 0]]


def test_the_fused_kernel_of_the_cpu_serves_a_cached_prefix() -> None:
    assert usable_attention(CPU, SMALL["llama"], "float32", 4, cached=8) == ("FLASH_ATTENTION",)
    q, cache = torch.randn(4, 8, 32), torch.randn(3, 8, 2, 32)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen, pinned("FLASH_ATTENTION"):
        attend_blocks(q, (cache, cache), Run(0, 1, 4, 16), torch.arange(3)[None], "FLASH_ATTENTION")
    names = {event.key for event in seen.key_averages()}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
    assert "aten::repeat_interleave" not in names


BAD_SEQUENCES = [
    ("held twice", {"block_ids": [np.arange(4), np.array([0, 1, 2, 5])]}),
    ("need 4 blocks; 3 were given", {"block_ids": [np.arange(3), np.arange(4, 8)]}),
    ("0 or more for each of 2", {"cached": [9]}),
    ("0 or more for each of 2", {"cached": [9, -1]}),
    ("a sequence of 65 tokens", {"cached": [9, 61], "block_ids": [np.arange(4), np.arange(4, 21)]}),
]


@pytest.mark.parametrize(("message", "change"), BAD_SEQUENCES, ids=range(len(BAD_SEQUENCES)))
def test_cached_tokens_that_do_not_fit_are_refused(message: str, change: dict[str, object]) -> None:
    good = {
        "token_ids": torch.zeros(8, dtype=torch.int64),
        "lengths": [4, 4],
        "block_ids": [np.arange(4), np.array([0, 1, 4, 5])],
        "cached": [9, 9],
    }
    weights = random_weights(SMALL["opt"], "float32", CPU)  # whose positions end
    pool = pool_for(weights.shape, torch.float32)
    prepare(CPU, weights, pool, Sequences(**good))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        prepare(CPU, weights, pool, Sequences(**(good | change)))  # type: ignore[arg-type]


def test_a_chunk_of_no_token_is_refused() -> None:
    weights = random_weights(SMALL["llama"], "float32", CPU)
    with pytest.raises(ValueError, match="chunk_tokens 0"):
        prepare_chunks(CPU, weights, pool_for(weights.shape, torch.float32), prompts(weights.shape, [5]), 0)
