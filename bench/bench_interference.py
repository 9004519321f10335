"""How much do a step and a swap beside it slow each other down, by copy method?"""

from __future__ import annotations

import time
from typing import Any

from bench.beside import running_beside
from bench.cases import DIRECTIONS, Case
from bench.company import ReadyStep, company_flops, ready_steps
from bench.measure import Benchmark, best_seconds
from bench.preempted import skip_unless_copied
from bench.prefills import skip_unless_computable
from bench.rows import Work
from bench.session import Session
from bench.transfers import make_transfer
from bench.verify import verify_all
from kernels.copy_methods import Issue
from kernels.device import Device
from kernels.swap import Swap

TABLE = "interference"


def bench_interference(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """One of the two on the device's stream, with the other again and again on the sibling's, and alone, turn about.

    The other is issued by a thread of its own; what that costs the timed one in host time is part of the answer.
    """
    device, beside, start = bench_session.device, bench_session.device.sibling(), time.perf_counter()
    skip_unless_computable(case)
    skip_unless_copied(case, device)
    timed: Issue
    other: Issue
    if case.timed == "company":
        step, swap, detail = make_both(case, bench_session, device, beside)
        timed, other, work = step.graph.issue, swap.issue, Work(flops=company_flops(case))
    else:
        step, swap, detail = make_both(case, bench_session, beside, device)
        timed, other, work = swap.issue, step.graph.issue, Work.of_plans(swap.plan)
    other_alone_s = best_seconds(other, beside)
    prepare_s = time.perf_counter() - start
    with running_beside(other, beside) as running:
        row = bench_session.time_case(
            case,
            benchmark,
            timed,
            work,
            prepare_s=prepare_s,
            verified=True,
            detail=detail | {"beside_alone_s": other_alone_s},
            baseline=timed,
            beside=running,
        )
    row["detail"]["beside_runs"] = running.runs_since(len(row["clocks"]["wall_s"]))


def make_both(
    case: Case, session: Session, computing: Device, copying: Device
) -> tuple[ReadyStep, Swap, dict[str, Any]]:
    """The company's step and the swap, each for a stream of its own, every byte of the swap verified; what they are."""
    assert case.direction in DIRECTIONS
    placed = session.workbench.place(case, session.axes(case).pool_tokens)
    transfer = make_transfer(case, case.direction, placed, slice(None), copying)
    verify_all(transfer.issue, copying, [transfer.carried])
    (step,) = ready_steps(case, session.workbench, computing, placed.device, placed.company_ids, [[]])
    return step, Swap(copying, transfer.plan, transfer.issue), step.detail(case) | transfer.facts()
