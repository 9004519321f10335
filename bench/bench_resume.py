"""How long does a sequence take from "resume" to the logits of its next token, swapped in or recomputed?"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from bench.cases import Case
from bench.measure import Benchmark, best_seconds
from bench.preempted import hold_numbers, place_preempted, skip_unless_copied
from bench.prefills import computed_flops, describe, graph_facts, graphed, ready_prefill, skip_unless_computable
from bench.rows import Work
from bench.session import Session
from bench.verify import verify_all
from kernels.recovery import prepare_resume

TABLE = "resume"


def bench_resume(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """Until the device has the logits of each sequence's last token."""
    skip_unless_computable(case)
    resume = recomputed if case.policy == "recompute" else swapped
    resume(case, bench_session, benchmark)


def recomputed(case: Case, session: Session, benchmark: Benchmark) -> None:
    """A prefill, which yields the logits itself."""
    prefill = ready_prefill(case, session.workbench)
    session.time_case(
        case,
        benchmark,
        prefill.issue,
        Work(flops=computed_flops(case)),
        prepare_s=prefill.prepare_s,
        verified=False,
        detail=prefill.detail,
    )


def swapped(case: Case, session: Session, benchmark: Benchmark) -> None:
    """Swap in of all tokens but the last, every byte verified, and a decode step of the last behind it."""
    device, before_last = session.device, case.length - 1
    skip_unless_copied(case, device)
    if not before_last:
        pytest.skip("a sequence of 1 token has nothing to swap in: its K and V are the decode step's")
    preempted = place_preempted(case, session)
    weights = session.workbench.weights(case)
    hold_numbers(preempted, session.workbench)
    start, held = time.perf_counter(), (preempted.pool, preempted.sequences, preempted.host)
    resume = prepare_resume(device, weights, *held, compile=device.backend == "cuda")
    graph = graphed(resume.step)
    prepare_s = time.perf_counter() - start
    verify_all(resume.swap.issue, device, [preempted.carried(0, before_last)])
    flops = case.sequences * case.shape.prefill_flops(1, before_last)
    step_alone_s = best_seconds(graph.issue, device)
    session.time_case(
        case,
        benchmark,
        replace(resume, compute=graph.issue).issue,
        replace(Work.of_plans(resume.swap.plan), flops=flops),
        prepare_s=prepare_s,
        verified=True,
        detail=describe(resume.step, case) | graph_facts(graph) | {"step_alone_s": step_alone_s},
    )
