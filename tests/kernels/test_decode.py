"""A decode step over K and V in the pool's blocks: the logits that one uninterrupted forward gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels.decode import PAGED, prepare_decode, usable_decode_attention
from kernels.paged_kv import block_ids
from kernels.sequences import Sequences
from kernels.shapes import LAYOUTS, Layout, ModelShape
from kernels.transformer import prepare
from kernels.weights import random_weights
from tests.kernels.hf_weights import SMALL
from tests.kernels.one_forward import assert_one_forward, expected_logits, texts, weights_of
from tests.kernels.test_transformer import BLOCK_SIZE, BLOCKS, CPU, UNTOUCHED, assert_close, pool_for, prompts


@pytest.fixture(params=list(SMALL))
def shape(request: pytest.FixtureRequest) -> ModelShape:
    return SMALL[request.param]


def before_last(sequences: Sequences) -> Sequences:
    """Every token but the last of each sequence."""
    lengths = [length - 1 for length in sequences.lengths]
    return replace(sequences, token_ids=torch.cat([ids[:-1] for ids in texts(sequences)]), lengths=lengths, cached=())


def last(sequences: Sequences) -> Sequences:
    """The last token of each sequence, the others cached."""
    ids = torch.stack([ids[-1] for ids in texts(sequences)])
    return Sequences(ids, [1] * len(ids), sequences.block_ids, [length - 1 for length in sequences.lengths])


@pytest.mark.parametrize(
    ("lengths", "dtype", "layout"),
    [
        ((13,), torch.float64, "layer_split"),
        ((5, 14, 9, 9), torch.float64, "layer_joined"),
        ((2, 64), torch.float64, "cross_layer"),
        ((13, 6), torch.float32, "cross_layer"),
    ],
    ids=str,
)
def test_a_step_behind_a_prefill_gives_what_one_forward_does(
    shape: ModelShape, lengths: tuple[int, ...], dtype: torch.dtype, layout: Layout
) -> None:
    weights, pool, sequences = weights_of(shape, dtype), pool_for(shape, dtype, layout), prompts(shape, lengths)
    step = prepare_decode(CPU, weights, pool, last(sequences))
    assert (step.attention, step.kv_writer.name) == ("FLASH_ATTENTION", "index_put")
    prepare(CPU, weights, pool, before_last(sequences)).fill()
    logits = step.issue()
    assert logits.shape == (len(lengths), shape.vocab)
    assert_one_forward(logits, pool, sequences)


@pytest.mark.parametrize("attention", ["MATH", "FLASH_ATTENTION", "FLASH_ATTENTION+REPEATED_KV"])
def test_every_attention_name_gives_the_same(shape: ModelShape, attention: str) -> None:
    weights, pool, sequences = weights_of(shape), pool_for(shape, torch.float64), prompts(shape, [9, 4])
    prepare(CPU, weights, pool, before_last(sequences)).fill()
    step = prepare_decode(CPU, weights, pool, last(sequences), attention)
    assert step.attention == attention
    assert_one_forward(step.issue(), pool, sequences)


def test_step_after_step_is_one_forward_over_all_of_them(shape: ModelShape) -> None:
    """Through the ends of blocks, with greedy tokens."""
    weights, pool = weights_of(shape), pool_for(shape, torch.float64)
    held = block_ids("scattered", 8, BLOCKS, seed=3)
    tables = [held[:4], held[4:]]
    grown = [torch.arange(3) + 1, torch.arange(6) + 40]
    logits = prepare(CPU, weights, pool, Sequences(torch.cat(grown), [3, 6], tables)).issue()
    for _ in range(6):
        new = logits.argmax(-1)
        step = Sequences(new, [1, 1], tables, cached=[len(ids) for ids in grown])
        grown = [torch.cat((ids, token[None])) for ids, token in zip(grown, new, strict=True)]
        logits = prepare_decode(CPU, weights, pool, step).issue()
        for row, ids in zip(logits, grown, strict=True):
            assert_close(row, expected_logits(shape, ids))
    assert_one_forward(logits, pool, Sequences(torch.cat(grown), [9, 12], tables))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_the_new_tokens_slots_are_written(layout: Layout) -> None:
    shape = SMALL["llama"]
    pool, sequences = pool_for(shape, torch.float32, layout), prompts(shape, [13, 5])
    prepare_decode(CPU, random_weights(shape, "float32", CPU), pool, last(sequences)).issue()
    slots = torch.zeros(BLOCKS, BLOCK_SIZE, dtype=torch.bool)
    for ids, length in zip(sequences.block_ids, sequences.lengths, strict=True):
        slots[ids[(length - 1) // BLOCK_SIZE], (length - 1) % BLOCK_SIZE] = True
    by_token = pool.bytes.unflatten(-1, (BLOCK_SIZE, -1))
    written = (by_token != UNTOUCHED).any(-1)
    assert (written == slots[:, None, None, :]).all()


def test_outside_layers_touches_no_block() -> None:
    shape = SMALL["llama"]
    pool = pool_for(shape, torch.float32)
    step = prepare_decode(CPU, random_weights(shape, "float32", CPU), pool, last(prompts(shape, [13, 5])))
    assert step.outside_layers().shape == (2, shape.vocab)
    assert (pool.arena == UNTOUCHED).all()


def test_the_kernel_is_for_cuda_only() -> None:
    weights = random_weights(SMALL["llama"], "float32", CPU)
    assert usable_decode_attention(CPU, weights, 12) == ("FLASH_ATTENTION",)
    pool = pool_for(weights.shape, torch.float32)
    with pytest.raises(ValueError, match="PAGED_TRITON does not run here: kernels need a CUDA device"):
        prepare_decode(CPU, weights, pool, last(prompts(weights.shape, [5])), PAGED)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("takes 1 new token a sequence", {"lengths": [2], "token_ids": torch.zeros(2, dtype=torch.int64)}),
        ("behind 1 or more cached", {"cached": [0]}),
        ("need 3 blocks; 2 were given", {"cached": [8]}),
        ("unknown attention 'FAST'", {}),
    ],
    ids=range(4),
)
def test_a_step_that_does_not_fit_is_refused(message: str, change: dict[str, object]) -> None:
    good = {"token_ids": torch.zeros(1, dtype=torch.int64), "lengths": [1], "block_ids": [np.arange(2)], "cached": [5]}
    weights = random_weights(SMALL["llama"], "float32", CPU)
    with pytest.raises(ValueError, match=message):
        prepare_decode(
            CPU,
            weights,
            pool_for(weights.shape, torch.float32),
            Sequences(**(good | change)),  # type: ignore[arg-type]
            None if change else "FAST",
        )
