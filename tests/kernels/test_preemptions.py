"""Preempted again and again: what comes back is what left, in that order, and no more crosses the link than must."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels import memcpy_batch_binding
from kernels.decode import prepare_decode
from kernels.device import Device, open_device
from kernels.paged_kv import Pool, block_ids
from kernels.preemptions import Preemptions, growing, prepare_recomputes, prepare_swaps
from kernels.recovery import fronts
from kernels.sequences import Sequences
from kernels.shapes import LAYOUTS, Layout, ModelShape
from kernels.swap import HostCopy, Swap, prepare_swap
from kernels.transformer import prepare
from tests.kernels.hf_weights import SMALL
from tests.kernels.one_forward import assert_one_forward, weights_of
from tests.kernels.test_transformer import BLOCK_SIZE, BLOCKS, CPU, UNTOUCHED, pool_for, prompts

WAIT_S = 20
LENGTHS = growing(6, 5, 3)  # a part of the second block, of the third, and all of the fourth


@pytest.fixture(params=list(SMALL))
def shape(request: pytest.FixtureRequest) -> ModelShape:
    return SMALL[request.param]


def on_both_sides(
    shape: ModelShape, length: int, layout: Layout = "layer_split", method: str = "memcpy_loop"
) -> tuple[Pool, Sequences, HostCopy]:
    """Two sequences, with blocks of random bytes on the device and of others on the host."""
    pool, sequences = pool_for(shape, torch.float64, layout), prompts(shape, [length, length])
    host = replace(pool_for(shape, torch.float64, layout), memory="host")
    counts = [len(ids) for ids in sequences.block_ids]
    held = np.split(block_ids("scattered", sum(counts), BLOCKS, seed=9), np.cumsum(counts)[:-1])
    for seed, arena in enumerate((pool.arena, host.arena)):
        arena.random_(generator=torch.Generator().manual_seed(seed))
    return pool, sequences, HostCopy(host, held, method)


def swaps(device: Device = CPU, keep: bool = False) -> tuple[Preemptions, Pool, Sequences, HostCopy]:
    pool, sequences, host = on_both_sides(SMALL["llama"], LENGTHS[-1])
    return prepare_swaps(device, pool, sequences, host, LENGTHS, keep), pool, sequences, host


def blocks(held: Sequence[np.ndarray], first: int, last: int) -> torch.Tensor:
    """Those that hold tokens from `first` to before `last` of each sequence."""
    return torch.from_numpy(np.concatenate([ids[first // BLOCK_SIZE : -(-last // BLOCK_SIZE)] for ids in held]))


def test_the_facts_are_those_of_the_case() -> None:
    freed, pool, *_ = swaps()
    kept, *_ = swaps(keep=True)
    pair = 2 * pool.geometry.block_bytes
    assert freed.lengths == kept.lengths == LENGTHS == [6, 11, 16]
    assert freed.bytes_in == freed.bytes_out == kept.bytes_in == [2 * pair, 3 * pair, 4 * pair]
    assert kept.bytes_out == [2 * pair, 2 * pair, 2 * pair]
    assert sum(plan.nbytes for plan in kept.plans) == 15 * pair


@pytest.mark.parametrize(("lengths", "out"), [([8, 12, 13], [2, 1, 1]), ([6, 6, 6], [2, 0, 0]), ([3, 4, 5], [1, 1, 1])])
def test_only_blocks_that_are_new_or_have_changed_go_out(lengths: list[int], out: list[int]) -> None:
    pool, sequences, host = on_both_sides(SMALL["llama"], 16)
    made = prepare_swaps(CPU, pool, sequences, host, lengths, keep=True)
    assert [nbytes // (2 * pool.geometry.block_bytes) for nbytes in made.bytes_out] == out


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("method", ["memcpy_loop", "torch_copy", "gather_copy"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_spoiled_while_it_is_away_comes_back(layout: Layout, method: str, keep: bool) -> None:
    """The sequence really grows: every block that a new token touches gets other bytes."""
    pool, sequences, host = on_both_sides(SMALL["qwen3"], LENGTHS[-1], layout, method)
    made, before = prepare_swaps(CPU, pool, sequences, host, LENGTHS, keep), 0
    for preemption in made.each:
        grown = blocks(sequences.block_ids, before, preemption.length)
        pool.bytes[grown] = torch.randint(0, 256, pool.bytes[grown].shape, dtype=torch.uint8)
        expected = pool.arena.clone()
        assert preemption.out is not None
        preemption.out.issue()
        pool.bytes[blocks(sequences.block_ids, 0, preemption.length)] = UNTOUCHED
        preemption.back.issue()
        assert torch.equal(pool.arena, expected)
        before = preemption.length


@pytest.mark.parametrize("keep", [False, True])
def test_what_decodes_between_preemptions_is_one_forward(shape: ModelShape, keep: bool) -> None:
    lengths, length = growing(6, 3, 3), 13
    pool, sequences, host = on_both_sides(shape, length)
    prepare(CPU, weights_of(shape), pool, fronts(sequences, [lengths[0]] * 2)).fill()
    texts, logits = torch.stack(sequences.token_ids.split(length)), None
    for preemption in prepare_swaps(CPU, pool, sequences, host, lengths, keep).each:
        assert preemption.out is not None
        preemption.out.issue()
        pool.arena.fill_(UNTOUCHED)
        preemption.back.issue()
        for cached in range(preemption.length, min(preemption.length + 3, length)):
            token = Sequences(texts[:, cached].contiguous(), [1, 1], sequences.block_ids, [cached] * 2)
            logits = prepare_decode(CPU, weights_of(shape), pool, token).issue()
    assert_one_forward(logits, pool, sequences)


def test_recomputes_fill_the_blocks_at_every_length(shape: ModelShape) -> None:
    pool, sequences, _ = on_both_sides(shape, 13)
    made = prepare_recomputes(CPU, weights_of(shape), pool, sequences, [5, 9, 13])
    assert (made.lengths, made.bytes_out, made.bytes_in, made.plans) == ([5, 9, 13], [0] * 3, [0] * 3, [])
    for preemption in made.each:
        pool.arena.fill_(UNTOUCHED)
        preemption.issue()
        assert_one_forward(None, pool, fronts(sequences, [preemption.length] * 2))
        assert (pool.bytes[blocks(sequences.block_ids, preemption.length + BLOCK_SIZE, 16)] == UNTOUCHED).all()
    pool.arena.fill_(UNTOUCHED)
    made.issue()
    assert_one_forward(None, pool, sequences)


def watched(made: Preemptions, watch: Callable[[str, Swap], Swap]) -> Preemptions:
    """The same preemptions, each swap as `watch` makes it."""
    return Preemptions(
        tuple(
            replace(it, out=watch("out", it.out), back=watch("in", it.back))  # type: ignore[arg-type]
            for it in made.each
        )
    )


@pytest.mark.parametrize("keep", [False, True])
def test_no_swap_in_overtakes_its_swap_out(keep: bool) -> None:
    """Copies run in a thread of their own. Whoever reads the host too early brings other bytes."""
    beside = open_device("cpu").sibling()
    made, pool, sequences, host = swaps(beside, keep)
    gate, order = threading.Event(), []

    def watch(name: str, swap: Swap) -> Swap:
        def copy() -> None:
            assert gate.wait(WAIT_S), "the gate never opened"
            swap.copy()
            order.append(name)

        return replace(swap, copy=copy)

    before, on_host = pool.arena.clone(), host.pool.arena.clone()
    watched(made, watch).issue()
    assert torch.equal(host.pool.arena, on_host)  # issuing does not wait
    gate.set()
    beside.wait()
    assert order == ["out", "in"] * 3
    assert torch.equal(pool.arena, before)
    mine, theirs = blocks(sequences.block_ids, 0, LENGTHS[-1]), blocks(host.block_ids, 0, LENGTHS[-1])
    assert torch.equal(host.pool.bytes[theirs], pool.bytes[mine])


def test_a_batch_behind_a_swap_out_reads_the_host_in_stream_order(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool]] = []

    def batch_copy(copies: Any, direction: str, stream: int, flags: int, behind_writes: bool) -> Callable[[], None]:
        seen.append((direction, behind_writes))
        return lambda: None

    monkeypatch.setattr(memcpy_batch_binding, "batch_copy", batch_copy)
    pool, sequences, host = on_both_sides(SMALL["llama"], 16, method="memcpy_batch")
    prepare_swaps(CPU, pool, sequences, host, [8, 16])
    assert seen == [("swap_out", True), ("swap_in", True)] * 2
    seen.clear()
    prepare_swap(CPU, pool, sequences, host, [0, 0], [16, 16])
    assert seen == [("swap_in", False)]


@pytest.mark.parametrize("lengths", [[], [0, 4], [8, 4], [8, 17]], ids=str)
def test_lengths_that_cannot_be_are_refused(lengths: list[int]) -> None:
    pool, sequences, host = on_both_sides(SMALL["llama"], 16)
    with pytest.raises(
        ValueError, match="at the preemptions; they must be 1 or more, never fall, and end with no more"
    ):
        prepare_swaps(CPU, pool, sequences, host, lengths)
    with pytest.raises(ValueError, match="than the 16 tokens of the shortest sequence"):
        prepare_recomputes(CPU, weights_of(SMALL["llama"]), pool, sequences, lengths)
