"""What does a sequence that comes back cost the step it joins, computed in the same pass or swapped in beside it?"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from bench.cases import Case
from bench.company import ready_steps
from bench.measure import Benchmark
from bench.preempted import skip_unless_copied
from bench.prefills import skip_unless_computable
from bench.rows import Work
from bench.session import Session
from bench.transfers import make_transfer
from bench.verify import verify_all
from kernels.copy_methods import Issue
from kernels.overlap import overlap
from kernels.swap import Swap

TABLE = "batching"


def bench_batching(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """The step with the sequence, and turn about without it; the sequence alone where there is no company."""
    join = recomputed if case.policy == "recompute" else swapped
    join(case, bench_session, benchmark)


def recomputed(case: Case, session: Session, benchmark: Benchmark) -> None:
    """All its tokens are new ones of the step."""
    skip_unless_computable(case)
    workbench, start = session.workbench, time.perf_counter()
    pool, ids, company_ids = workbench.place_on_device(case)
    joining = [np.split(ids, case.sequences), *([[]] if case.company else [])]
    together, *without = ready_steps(case, workbench, session.device, pool, company_ids, joining)
    session.time_case(
        case,
        benchmark,
        together.graph.issue,
        Work(flops=case.sequences * case.shape.prefill_flops(case.length)),
        prepare_s=time.perf_counter() - start,
        verified=False,
        detail=together.detail(case),
        baseline=without[0].graph.issue if without else None,
    )


def swapped(case: Case, session: Session, benchmark: Benchmark) -> None:
    """Its blocks come in on the sibling's stream, verified with the step beside them; both done ends the round."""
    device, workbench = session.device, session.workbench
    skip_unless_copied(case, device)
    if case.company:
        skip_unless_computable(case)
    placed = workbench.place(case, session.axes(case).pool_tokens)
    where = device.sibling() if case.company else device
    transfer = make_transfer(case, "swap_in", placed, slice(None), where)
    swap, start = Swap(where, transfer.plan, transfer.issue), time.perf_counter()
    issue: Issue = swap.issue
    baseline: Issue | None = None
    detail = transfer.facts()
    if case.company:
        (step,) = ready_steps(case, workbench, device, placed.device, placed.company_ids, [[]])
        issue, baseline = partial(overlap, device, step.graph.issue, swap.issue), step.graph.issue
        detail |= step.detail(case)
    verify_all(issue, device, [transfer.carried])
    session.time_case(
        case,
        benchmark,
        issue,
        Work.of_plans(transfer.plan),
        prepare_s=transfer.prepare_s + time.perf_counter() - start,
        verified=True,
        detail=detail,
        baseline=baseline,
    )
