"""What cases need, what is kept free for them, and what is refused; on a traced device, where nothing is allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bench import conftest, grids, prefills, sweep, workbench
from bench.cases import RECOVERIES, Case
from bench.company import ready_steps
from bench.memory import (
    Needs,
    beside_pools,
    device_blocks,
    host_blocks,
    needs_of,
    passes,
    sequence_blocks,
    uncomputable,
)
from bench.nvml import Nvml
from bench.prefills import make_prefill
from bench.workbench import DEVICE_SHARE, Workbench
from kernels.activations import Attending, Pass
from kernels.device import DoesNotFit, PinRefused
from kernels.peaks import prepare_gemm, prepare_memory_copy
from tests.kernels.traced_memory import Trace, TracedDevice, traced

GB = 10**9
Sized = list[tuple[Case, int]]
LLAMA: dict[str, Any] = {"model": "llama-3-8b", "dtype": "bfloat16", "layers_timed": 32, "layers_model": 32}
SWAPPED: dict[str, Any] = LLAMA | {"method": "memcpy_loop", "placement": "scattered", "layout": "layer_split"}
SMALL = Case("recompute", seq_len=512, **LLAMA)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trace]:
    """Device memory that is counted; nothing is filled, and nothing is timed to choose the fastest."""
    monkeypatch.setattr(workbench, "fill_random", lambda *_: None)
    monkeypatch.setattr(Workbench, "_warm_link", lambda _: None)
    monkeypatch.setattr(prefills, "best_seconds", lambda *_: 0.0)
    with traced() as trace:
        yield trace


def of_sweep(name: str) -> Sized:
    tables = sweep.load(name).tables
    return [(case, axes.pool_tokens) for table, axes in tables.items() for case in grids.GRIDS[table](axes)]


def needs(case: Case, pool_tokens: int = 0) -> Needs:
    return needs_of(case, pool_tokens, lambda _: Attending())


def workbench_of(trace: Trace, device_bytes: int, cases: Sized) -> Workbench:
    return Workbench(TracedDevice(trace, device_bytes), Nvml(None, present=False), cases, 0)


def test_every_case_of_quick_fits_40_gb() -> None:
    sized = of_sweep("quick")
    assert {case.recovery for case, _ in sized} == set(RECOVERIES)
    every = [needs(*one) for one in sized]
    budget = int(DEVICE_SHARE * 40 * GB)
    kept, arena = beside_pools(every, budget), max(need.device_pool for need in every)
    pinned = max(need.host_pool for need in every)
    print(f"quick: {kept:,} bytes beside an arena of {arena:,} on the device; {pinned:,} pinned on the host")
    assert all(need.weights + need.working + need.spare <= kept for need in every)
    assert kept + arena <= budget
    assert pinned <= 16 * GB


def test_quick_is_traced_in_40_gb(trace: Trace) -> None:
    """Every pool is placed; then the real model's largest prefill, and its largest step with and without a sequence."""
    sized = of_sweep("quick")
    bench = workbench_of(trace, 40 * GB, sized)
    for case, pool_tokens in sized:
        if case.crosses_link:
            bench.place(case, pool_tokens)
        elif case.model:
            bench.place_on_device(case)
    arena = trace.peak_bytes
    prefill, step = (
        max((case for case, _ in sized if case.recovery == recovery), key=lambda case: needs(case).working)
        for recovery in ("recompute", "batching")
    )
    for case, issue in ((prefill, make_prefill(prefill, bench).issue), (step, steps_of(step, bench))):
        trace.forget_peak()
        issue()
        print(f"{case.id}: {trace.peak_bytes:,} bytes at most")
        need = needs(case)
        assert need.working / 1.3 < trace.peak_bytes - arena - need.weights < need.working
        assert trace.peak_bytes < DEVICE_SHARE * 40 * GB


def steps_of(case: Case, bench: Workbench) -> Callable[[], None]:
    """The company's step with the sequence, then without it."""
    pool, ids, company_ids = bench.place_on_device(case)
    steps = ready_steps(case, bench, bench.device, pool, company_ids, [np.split(ids, case.sequences), []])

    def issue() -> None:
        logits = [len(step.graph.issue()) for step in steps]
        assert logits == [len(one.new) for one in passes(case)]

    return issue


def test_what_comes_first_takes_no_room_twice(trace: Trace) -> None:
    """On 24 GB the weights are two thirds: whether they or the pool are made first, the pool has the same room."""
    swap = Case("swap", direction="swap_in", seq_len=8192, block_size=16, **SWAPPED)
    cases = [(SMALL, 0), (swap, 0)]
    weights_first, pool_first = (workbench_of(trace, 24 * GB, cases) for _ in range(2))
    weights_first.weights(SMALL)
    weights_first.place(swap, 0)
    weights_first._weights = weights_first._device_arena = None
    pool_first.place(swap, 0)
    pool_first.weights(SMALL)
    assert weights_first._room == pool_first._room


def test_weights_that_are_held_do_not_let_a_larger_pass_in(trace: Trace) -> None:
    large = replace(SMALL, batch=200)
    bench = workbench_of(trace, 20 * GB, [(SMALL, 0), (large, 0)])
    held, before = bench.weights(SMALL), trace.live_bytes
    trace.forget_peak()
    with pytest.raises(DoesNotFit, match=r"a pass of 102,400 tokens needs 14,\d+,\d+,\d+ bytes .*; 4,\d+,\d+,\d+ are"):
        bench.weights(large)
    assert trace.peak_bytes == before
    assert bench.weights(SMALL) is held


REFUSED: dict[str, Case] = {
    "a long sequence": Case("recompute", seq_len=40960, **LLAMA | {"model": "qwen3-8b", "layers_timed": 36}),
    "a large batch": replace(SMALL, batch=512),
    "a long chunk behind many": Case("recompute", seq_len=8192, batch=64, chunk_tokens=4096, **LLAMA),
    "a model": Case("recompute", seq_len=16, **LLAMA | {"model": "llama-3-70b", "layers_timed": 80}),
    "a company": Case(
        "batching", policy="recompute", company="prefill", company_size=8192, batch=64, seq_len=256, **LLAMA
    ),
    "preemptions": Case(
        "preemptions", policy="recompute", seq_len=4096, preemptions=9, growth_tokens=512, batch=4, **LLAMA
    ),
    "a hybrid": Case("hybrid", fraction=0.9, seq_len=8192, batch=8, block_size=16, **SWAPPED),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_computed_here_is_refused_before_it_is_allocated(case: Case, trace: Trace) -> None:
    bench = workbench_of(trace, 18 * GB, [(case, 0)])
    with pytest.raises(DoesNotFit, match=rf"{case.model} with a pass of .* needs [\d,]+ bytes .*; [\d,]+ are free"):
        bench.weights(case)
    assert trace.peak_bytes < 64 << 20


SWAP = Case("swap", direction="swap_in", seq_len=4096, block_size=16, **SWAPPED)
STEP: dict[str, Any] = {"company": "decode", "company_context": 4096, "company_size": 64}
UNPLACED: dict[str, tuple[Case, str]] = {
    "a long sequence": (replace(SWAP, seq_len=1 << 20), "device"),
    "a large batch": (replace(SWAP, batch=64), "device"),
    "a company": (replace(SWAP, recovery="interference", timed="swap", **STEP), "device"),
    "a host": (replace(SWAP, batch=16), "host"),
}


@pytest.mark.parametrize(("case", "side"), UNPLACED.values(), ids=UNPLACED)
def test_pools_that_do_not_fit_are_refused_before_they_are_allocated(case: Case, side: str, trace: Trace) -> None:
    device = TracedDevice(trace, 24 * GB, host_bytes=16 * GB)
    bench = Workbench(device, Nvml(None, present=False), [(SWAP, 0), (case, 0)], 0)
    asked = needs(case).device_pool if side == "device" else needs(case).host_pool
    with pytest.raises(DoesNotFit, match=rf"a pool of {asked:,} bytes in {side} memory; [\d,]+ are free"):
        bench.place(case, 0)
    assert trace.peak_bytes < asked or side == "host"
    assert device.free_bytes()[1] >= 16 * GB - needs(SWAP).host_pool
    bench.place(SWAP, 0)


def test_probes_that_do_not_fit_are_refused_before_they_are_allocated(trace: Trace) -> None:
    device = TracedDevice(trace, 2 * GB)
    with pytest.raises(DoesNotFit, match=r"needs 2,147,483,648 bytes .*; 2,000,000,000 are free"):
        prepare_memory_copy(device, 1 << 30)
    with pytest.raises(DoesNotFit, match=r"needs 6,442,450,944 bytes .*; 2,000,000,000 are free"):
        prepare_gemm(device, "bfloat16", 32768)
    assert trace.peak_bytes == 0


@pytest.mark.parametrize("refusal", [DoesNotFit, PinRefused, torch.OutOfMemoryError])
def test_a_case_without_room_is_skipped_with_the_reason(refusal: type[Exception]) -> None:
    hook = conftest.pytest_pyfunc_call(None)  # type: ignore[arg-type]
    next(hook)
    with pytest.raises(pytest.skip.Exception, match=r"^2 bytes asked; 1 is free$"):
        hook.throw(refusal("2 bytes asked; 1 is free\nand a page of advice"))


def test_no_room_is_kept_for_what_is_going_to_be_skipped() -> None:
    fits, too_large = Needs(10, 10, weights=40, working=5), Needs(90, 0, weights=40, working=20)
    assert beside_pools([fits, too_large], 100) == 45
    assert beside_pools([fits, Needs(0, 0, weights=0, working=8)], 100) == 48  # beside weights that are held
    assert beside_pools([too_large], 100) == 0
    recorded = Needs(30, 0, weights=40, working=20, spare=20)
    assert [beside_pools([recorded], budget) for budget in (110, 100, 90, 89)] == [80, 70, 60, 0]


def test_pools_have_room_to_scatter_and_ceilings_need_none() -> None:
    axes = sweep.load("figure19").tables["swap"]
    scattered = next(case for case in grids.swaps(axes) if case.block_size == 16)
    ceiling = next(case for case in grids.swaps(axes) if case.is_ceiling)
    assert (sequence_blocks(scattered), device_blocks(scattered, 12288), device_blocks(scattered, 0)) == (16, 768, 32)
    assert device_blocks(ceiling, 12288) == host_blocks(ceiling, 12288) == sequence_blocks(ceiling)
    assert ceiling.geometry.block_bytes * sequence_blocks(ceiling) == 256 * 819_200


def test_only_learned_positions_end() -> None:
    sizes: dict[str, Any] = {"seq_len": 32768, "dtype": "float16", "layers_timed": 1, "layers_model": 1, "batch": 1}
    assert uncomputable(Case("recompute", model="llama-3-8b", **sizes)) is None
    assert uncomputable(Case("recompute", model="opt-13b", **sizes)) == "opt-13b has positions for 2,048 tokens"


def test_a_company_stays_on_the_device() -> None:
    case = replace(SWAP, recovery="batching", policy="swap", **STEP)
    assert host_blocks(case, 0) == 2 * 256
    assert device_blocks(case, 0) == 2 * 256 + 64 * 257


def test_fragments_of_a_copy_are_no_tokens() -> None:
    case = Case("copy", direction="both", method="memcpy_loop", placement="scattered", fragment_bytes=64, fragments=8)
    assert device_blocks(case, 12288) == host_blocks(case, 12288) == 16


def test_a_case_with_a_baseline_or_preemptions_has_several_passes() -> None:
    chunked = Case("recompute", seq_len=4096, chunk_tokens=1024, **LLAMA)
    assert passes(chunked) == [Pass([1024], [3072])]
    assert passes(replace(chunked, chunk_tokens=None, cached_tokens=4000)) == [Pass([96], [4000])]
    joined = Case(
        "batching", policy="recompute", seq_len=64, company="decode", company_size=2, company_context=9, **LLAMA
    )
    assert passes(joined) == [Pass([1, 1, 64], [9, 9, 0]), Pass([1, 1], [9, 9])]
    assert passes(replace(joined, policy="swap")) == [Pass([1, 1], [9, 9])]
    assert passes(replace(joined, company=None, company_size=None)) == [Pass([64], [0])]
    again = Case("preemptions", policy="recompute", seq_len=64, preemptions=2, growth_tokens=8, **LLAMA)
    assert passes(again) == [Pass([64], [0]), Pass([72], [0])]
    hybrid = Case("hybrid", seq_len=64, fraction=0.5, block_size=16, **SWAPPED)
    assert passes(hybrid) == [Pass([32], [0])]
    assert passes(replace(hybrid, fraction=0.0)) == []
    assert passes(Case("resume", policy="swap", seq_len=64, **LLAMA)) == [Pass([1], [63])]


def test_recordings_keep_what_every_pass_takes() -> None:
    once = Case("preemptions", policy="recompute", seq_len=512, preemptions=1, growth_tokens=0, **LLAMA)
    one, three = needs(once), needs(replace(once, preemptions=3))
    assert one.spare == one.working == needs(SMALL).working
    assert (three.working, three.spare) == (one.working, 5 * one.working)


def test_what_is_not_computed_needs_no_weights() -> None:
    longer = replace(SMALL, model="opt-13b", layers_timed=40, layers_model=40, seq_len=2049)
    assert needs(SWAP).weights == needs(longer).weights == needs(longer).working == 0
    assert needs(SMALL).weights == SMALL.shape.weight_bytes("bfloat16") > 15 * GB
    staged = replace(SWAP, method="gather_copy", staging_bytes=1 << 20)
    assert needs(staged).working == 1 << 20
    assert needs(Case("ridge", probe="gemm", dtype="bfloat16", matrix=1024)) == Needs(0, 0, 0, 6 << 20)
    assert needs(Case("ridge", probe="memory", memory_bytes=1 << 20)) == Needs(0, 0, 0, 2 << 20)
