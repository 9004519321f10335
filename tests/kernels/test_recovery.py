"""Swap, recompute and hybrid: whichever way a sequence comes back, its K, V and logits are those of one forward."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels import copy_methods, copy_plan
from kernels.chunked import ChunkedPrefill
from kernels.device import open_device
from kernels.paged_kv import Pool, block_ids
from kernels.recovery import HostCopy, Hybrid, front_tokens, prepare_hybrid, prepare_resume, prepare_swap
from kernels.sequences import Sequences
from kernels.shapes import LAYOUTS, Layout, ModelShape
from kernels.transformer import prepare
from tests.kernels.hf_weights import SMALL
from tests.kernels.one_forward import assert_one_forward, weights_of
from tests.kernels.test_transformer import BLOCK_SIZE, BLOCKS, UNTOUCHED, pool_for, prompts, stored

LENGTHS = (13, 24, 6, 9)
FRACTIONS = (0, 0.3, 0.5, 0.99, 1)
WAIT_S = 20


@pytest.fixture(params=list(SMALL))
def shape(request: pytest.FixtureRequest) -> ModelShape:
    return SMALL[request.param]


def preempted(
    shape: ModelShape,
    lengths: Sequence[int] = LENGTHS,
    dtype: torch.dtype = torch.float64,
    layout: Layout = "layer_split",
    method: str = "memcpy_loop",
) -> tuple[Pool, Sequences, HostCopy]:
    """An empty pool, and sequences that were swapped out of it to other blocks of the host."""
    pool, sequences = pool_for(shape, dtype, layout), prompts(shape, lengths)
    prepare(open_device("cpu"), weights_of(shape, dtype), pool, sequences).fill()
    host = replace(pool_for(shape, dtype, layout), memory="host")
    counts = [len(ids) for ids in sequences.block_ids]
    held = block_ids("scattered", sum(counts), BLOCKS, seed=9)
    plan = copy_plan.build(pool, np.concatenate(sequences.block_ids), host, held)
    copy_methods.find("memcpy_loop").prepare(plan, open_device("cpu"))()
    pool.arena.fill_(UNTOUCHED)
    return pool, sequences, HostCopy(host, np.split(held, np.cumsum(counts)[:-1]), method)


def hybrid_of(shape: ModelShape, fraction: float, **options: object) -> tuple[Hybrid, Pool, Sequences, HostCopy]:
    pool, sequences, host = preempted(shape)
    made = prepare_hybrid(open_device("cpu"), weights_of(shape), pool, sequences, host, fraction, **options)  # type: ignore[arg-type]
    return made, pool, sequences, host


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_a_hybrid_of_any_fraction_ends_as_one_forward_does(shape: ModelShape, fraction: float) -> None:
    hybrid, pool, sequences, _ = hybrid_of(shape, fraction)
    assert (pool.arena == UNTOUCHED).all()
    assert_one_forward(hybrid.issue(), pool, sequences)
    pool.arena.fill_(UNTOUCHED)
    assert_one_forward(hybrid.issue(), pool, sequences)


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_without_resume_k_and_v_come_back_and_no_logits(fraction: float) -> None:
    hybrid, pool, sequences, _ = hybrid_of(SMALL["llama"], fraction, resume=False)
    assert hybrid.issue() is None
    assert hybrid.step is None
    assert_one_forward(None, pool, sequences)


@pytest.mark.parametrize("method", ["memcpy_loop", "torch_copy", "gather_copy"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_and_copy_method(layout: Layout, method: str) -> None:
    shape = SMALL["qwen3"]
    pool, sequences, host = preempted(shape, dtype=torch.float32, layout=layout, method=method)
    weights = weights_of(shape, torch.float32)
    assert_one_forward(prepare_hybrid(open_device("cpu"), weights, pool, sequences, host, 0.4).issue(), pool, sequences)
    pool.arena.fill_(UNTOUCHED)
    assert_one_forward(prepare_resume(open_device("cpu"), weights, pool, sequences, host).issue(), pool, sequences)


def test_decode_after_swap_in_is_one_forward(shape: ModelShape) -> None:
    pool, sequences, host = preempted(shape)
    resume = prepare_resume(open_device("cpu"), weights_of(shape), pool, sequences, host)
    assert resume.swap.plan.nbytes == pool.geometry.block_bytes * (3 + 6 + 2 + 2)  # 12, 23, 5 and 8 tokens
    assert_one_forward(resume.issue(), pool, sequences)


def test_the_front_may_be_computed_in_chunks(shape: ModelShape) -> None:
    hybrid, pool, sequences, _ = hybrid_of(shape, 0.6, chunk_tokens=5)
    assert isinstance(hybrid.front, ChunkedPrefill)
    assert_one_forward(hybrid.issue(), pool, sequences)


def test_the_front_is_computed_and_the_rest_is_the_hosts_bytes() -> None:
    """What the host holds of the front is never used, and what it holds of the rest is never computed."""
    shape = SMALL["llama"]
    hybrid, pool, sequences, host = hybrid_of(shape, 0.5, resume=False)
    assert hybrid.front_tokens == (4, 12, 0, 4)
    assert hybrid.front is not None
    assert hybrid.rest is not None
    assert len(hybrid.front.forward.token_ids) == 20  # type: ignore[union-attr]
    whole = host.pool.bytes.clone()
    host.pool.arena.random_(generator=torch.Generator().manual_seed(1))
    hybrid.issue()
    expected = host.pool.bytes.clone()
    host.pool.bytes.copy_(whole)
    for ids, on_host, front in zip(sequences.block_ids, host.block_ids, hybrid.front_tokens, strict=True):
        blocks = front // BLOCK_SIZE
        assert torch.equal(pool.bytes[ids[blocks:]], expected[on_host[blocks:]])
    for layer in range(shape.layers):
        for ids, on_host, front in zip(sequences.block_ids, host.block_ids, hybrid.front_tokens, strict=True):
            for ours, theirs in zip(
                stored(pool, layer, ids, front), stored(host.pool, layer, on_host, front), strict=True
            ):
                torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def slow(copy: Callable[[], object], gate: threading.Event, begun: threading.Event) -> Callable[[], object]:
    """The copy, once the gate opens."""

    def gated() -> None:
        begun.set()
        assert gate.wait(WAIT_S), "the gate never opened"
        copy()

    return gated


def test_front_is_computed_while_copies_are_under_way() -> None:
    """The front waits until copies have begun, and they wait for the front: neither could come first."""
    hybrid, pool, sequences, _ = hybrid_of(SMALL["llama"], 0.5)
    gate, begun = threading.Event(), threading.Event()
    assert hybrid.compute is not None
    assert hybrid.rest is not None

    def opens_the_gate() -> None:
        assert begun.wait(WAIT_S), "the copies never began"
        hybrid.compute()  # type: ignore[misc]
        gate.set()

    rest = replace(hybrid.rest, copy=slow(hybrid.rest.copy, gate, begun))
    gated = replace(hybrid, compute=opens_the_gate, rest=rest)
    assert_one_forward(gated.issue(), pool, sequences)


def test_the_step_reads_nothing_before_it_has_landed() -> None:
    hybrid, pool, sequences, _ = hybrid_of(SMALL["llama"], 0.5)
    gate = threading.Event()
    assert hybrid.rest is not None
    threading.Timer(0.3, gate.set).start()
    gated = replace(hybrid, rest=replace(hybrid.rest, copy=slow(hybrid.rest.copy, gate, threading.Event())))
    assert_one_forward(gated.issue(), pool, sequences)
    assert gate.is_set()


def test_a_copy_that_fails_fails_the_recovery() -> None:
    def refused() -> None:
        raise OSError("no link")

    hybrid, *_ = hybrid_of(SMALL["llama"], 0.5)
    assert hybrid.rest is not None
    with pytest.raises(OSError, match="no link"):
        replace(hybrid, rest=replace(hybrid.rest, copy=refused)).issue()


def test_fronts_are_whole_blocks_and_leave_the_last_token() -> None:
    assert front_tokens([13, 24, 6], 0, 4) == (0, 0, 0)
    assert front_tokens([13, 24, 6], 0.5, 4) == (4, 12, 0)
    assert front_tokens([13, 24, 4, 1], 0.9999999999999, 4) == (12, 20, 0, 0)
    assert front_tokens([13, 24, 4, 1], 1, 4) == (13, 24, 4, 1)
    assert front_tokens([100], 0.29, 1) == (29,)


def test_an_extreme_has_only_its_own_part() -> None:
    swapped, *_ = hybrid_of(SMALL["llama"], 0)
    computed, *_ = hybrid_of(SMALL["llama"], 1)
    assert (swapped.front, computed.rest, computed.step) == (None, None, None)


def test_what_does_not_fit_is_refused() -> None:
    shape, device = SMALL["llama"], open_device("cpu")
    pool, sequences, host = preempted(shape)
    with pytest.raises(ValueError, match=r"fraction 1\.5; it must be from 0"):
        prepare_hybrid(device, weights_of(shape), pool, sequences, host, 1.5)
    with pytest.raises(ValueError, match="holds nothing yet"):
        prepare_hybrid(device, weights_of(shape), pool, replace(sequences, cached=[0, 0, 4, 0]), host, 0.5)
    few = replace(host, block_ids=[ids[:1] for ids in host.block_ids])
    with pytest.raises(ValueError, match="4 blocks of a sequence are to be swapped; the host has 1"):
        prepare_swap(device, pool, sequences, few, [0] * 4, LENGTHS)
