"""Decode and prefill in one pass: each sequence's logits, K and V are those of one uninterrupted forward over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from kernels.attention import attend_packed, with_tables
from kernels.device import Device, open_device
from kernels.kv_writer import KV
from kernels.mixed import decoding_first, prepare_mixed
from kernels.paged_kv import Pool
from kernels.sequences import Sequences
from kernels.shapes import Layout, ModelShape
from kernels.step import PAGED, Step
from kernels.transformer import prepare
from kernels.weights import Weights, random_weights
from tests.kernels.hf_weights import SMALL
from tests.kernels.one_forward import assert_one_forward, texts, weights_of
from tests.kernels.test_transformer import BLOCK_SIZE, BLOCKS, CPU, UNTOUCHED, pool_for, prompts

LENGTHS = (13, 6, 9, 5)


@pytest.fixture(params=list(SMALL))
def shape(request: pytest.FixtureRequest) -> ModelShape:
    return SMALL[request.param]


def cut(sequences: Sequences, cached: Sequence[int]) -> tuple[Sequences, Sequences]:
    """The first `cached` tokens of each sequence that has any, and what is new behind them."""
    pieces = list(zip(texts(sequences), cached, strict=True))
    begun = [number for number, count in enumerate(cached) if count]
    before = Sequences(
        torch.cat([text[:count] for text, count in pieces]),
        [cached[number] for number in begun],
        [sequences.block_ids[number] for number in begun],
    )
    new = [text[count:] for text, count in pieces]
    return before, Sequences(torch.cat(new), [len(ids) for ids in new], sequences.block_ids, cached)


def mixed(weights: Weights, pool: Pool, sequences: Sequences, cached: Sequence[int], **options: str) -> Step:
    before, after = cut(sequences, cached)
    prepare(CPU, weights, pool, before).fill()
    return prepare_mixed(CPU, weights, pool, after, **options)


@pytest.mark.parametrize(
    ("cached", "dtype", "layout"),
    [
        ((12, 5, 0, 0), torch.float64, "layer_split"),
        ((12, 5, 4, 0), torch.float64, "cross_layer"),  # one that prefills has a cached prefix
        ((12, 5, 8, 4), torch.float64, "layer_joined"),  # all decode
        ((12, 0, 0, 0), torch.float32, "cross_layer"),
    ],
    ids=str,
)
def test_every_sequence_of_a_mixed_step_ends_as_one_forward_does(
    shape: ModelShape, cached: tuple[int, ...], dtype: torch.dtype, layout: Layout
) -> None:
    weights, pool, sequences = weights_of(shape, dtype), pool_for(shape, dtype, layout), prompts(shape, LENGTHS)
    step = mixed(weights, pool, sequences, cached)
    assert (step.attention, step.paged) == ("FLASH_ATTENTION", None)
    logits = step.issue()
    assert logits.shape == (len(LENGTHS), shape.vocab)
    assert_one_forward(logits, pool, sequences)


@dataclass(frozen=True)
class GatheredInstead:
    """What the Triton kernel computes, by other means; it remembers how many tokens it was given."""

    device: Device
    sequences: Sequences
    seen: list[int]

    @property
    def contexts(self) -> list[int]:
        return self.sequences.contexts

    def __call__(self, q: torch.Tensor, kv: KV) -> torch.Tensor:
        self.seen.append(len(q))
        return attend_packed(q, q, q, kv, with_tables(self.sequences, BLOCK_SIZE, self.device.torch_device), "MATH")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A kernel for decoding sequences runs here; the tokens that it was given, layer after layer."""
    given: list[int] = []
    monkeypatch.setattr("kernels.mixed.no_paged", lambda *_: None)
    monkeypatch.setattr(
        "kernels.mixed.bind_paged",
        lambda device, weights, pool, sequences: GatheredInstead(device, sequences, given),
    )
    return given


@pytest.mark.parametrize(("cached", "decoding"), [((12, 5, 0, 0), 2), ((12, 5, 4, 0), 2), ((12, 5, 8, 4), 4)], ids=str)
def test_the_kernel_serves_the_sequences_that_decode_and_no_other(
    shape: ModelShape, seen: list[int], cached: tuple[int, ...], decoding: int
) -> None:
    pool, sequences = pool_for(shape, torch.float64), prompts(shape, LENGTHS)
    step = mixed(weights_of(shape), pool, sequences, cached)
    assert step.attention == (PAGED if decoding == len(LENGTHS) else "FLASH_ATTENTION")
    assert_one_forward(step.issue(), pool, sequences)
    assert seen == [decoding] * shape.layers


def test_without_sequences_that_decode_it_is_a_prefill(seen: list[int]) -> None:
    shape = SMALL["qwen3"]
    pool, sequences = pool_for(shape, torch.float64), prompts(shape, LENGTHS)
    step = prepare_mixed(CPU, weights_of(shape), pool, sequences, "MATH")
    assert (step.attention, step.paged) == ("MATH", None)
    assert_one_forward(step.issue(), pool, sequences)
    assert seen == []


def test_only_the_first_sequences_of_one_token_decode() -> None:
    def count(lengths: list[int], cached: list[int]) -> int:
        return decoding_first(Sequences(torch.zeros(sum(lengths)), lengths, [np.arange(1)] * len(lengths), cached))

    assert count([1, 1, 7, 1], [3, 9, 0, 4]) == 2
    assert count([1, 1], [0, 9]) == 0  # a prompt of one token
    assert count([2, 1], [5, 9]) == 0


def test_a_step_without_company_writes_what_it_writes_beside_others() -> None:
    """What is computed for the company does not depend on who joins it."""
    shape = SMALL["llama"]
    weights, sequences = random_weights(shape, "float64", CPU), prompts(shape, LENGTHS)
    alone = Sequences(sequences.token_ids[: sum(LENGTHS[:2])], LENGTHS[:2], sequences.block_ids[:2])
    one, other = pool_for(shape, torch.float64), pool_for(shape, torch.float64)
    mixed(weights, one, alone, (12, 5)).issue()
    mixed(weights, other, sequences, (12, 5, 0, 0)).issue()
    held = torch.from_numpy(np.concatenate(alone.block_ids))
    free = torch.from_numpy(np.setdiff1d(np.arange(BLOCKS), np.concatenate(sequences.block_ids)))
    for layer in range(shape.layers):
        for ours, theirs in zip(one.kv(layer), other.kv(layer), strict=True):
            torch.testing.assert_close(ours[held], theirs[held], rtol=1e-10, atol=1e-10)
    assert (other.bytes[free] == UNTOUCHED).all()


@pytest.mark.parametrize("decoding", [False, True], ids=["gathered", "kernel"])
def test_an_unknown_attention_is_refused(decoding: bool, request: pytest.FixtureRequest) -> None:
    if decoding:
        request.getfixturevalue("seen")
    shape = SMALL["llama"]
    with pytest.raises(ValueError, match="unknown attention 'FAST'"):
        mixed(
            weights_of(shape), pool_for(shape, torch.float64), prompts(shape, LENGTHS), (12, 5, 0, 0), attention="FAST"
        )


def test_a_step_runs_on_a_sibling_too() -> None:
    """Weights and pool are the device's, the stream is the sibling's; nothing is issued through the copying thread."""
    shape, beside = SMALL["opt"], open_device("cpu").sibling()
    pool, sequences = pool_for(shape, torch.float64), prompts(shape, LENGTHS)
    before, after = cut(sequences, (12, 5, 0, 0))
    prepare(CPU, weights_of(shape), pool, before).fill()
    assert_one_forward(prepare_mixed(beside, weights_of(shape), pool, after).issue(), pool, sequences)
