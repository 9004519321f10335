"""How fast do fragments cross the link, by their size, their number and the copy method; one way and both at once?"""

from __future__ import annotations

import pytest

from bench.cases import BOTH, DIRECTIONS, Case
from bench.measure import Benchmark
from bench.rows import Work
from bench.session import Session
from bench.transfers import Transfer, make_transfer
from bench.verify import verify_all
from bench.workbench import Placed
from kernels import copy_methods
from kernels.copy_methods import Issue
from kernels.device import Device

TABLE = "copy"


def bench_copy(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """One point of the grid, verified before it is timed."""
    assert case.method is not None
    device = bench_session.device
    if reason := copy_methods.find(case.method).unavailable(device):
        pytest.skip(reason)
    placed = bench_session.workbench.place(case, pool_tokens=0)
    transfers, issue = both_ways(case, placed, device) if case.direction == BOTH else one_way(case, placed, device)
    verify_all(issue, device, [transfer.carried for transfer in transfers])
    bench_session.time_case(
        case,
        benchmark,
        issue,
        Work.of_plans(*(transfer.plan for transfer in transfers)),
        prepare_s=sum(transfer.prepare_s for transfer in transfers),
        verified=True,
        detail=transfers[0].facts(),
    )


def one_way(case: Case, placed: Placed, device: Device) -> tuple[list[Transfer], Issue]:
    """All fragments in the case's direction."""
    assert case.direction in DIRECTIONS
    transfer = make_transfer(case, case.direction, placed, slice(None), device)
    return [transfer], transfer.issue


def both_ways(case: Case, placed: Placed, device: Device) -> tuple[list[Transfer], Issue]:
    """As many fragments out as in, on two streams that start and end together; one thread enqueues both."""
    half, beside = len(placed.device_ids) // 2, device.sibling()
    out = make_transfer(case, "swap_out", placed, slice(half), device)
    back = make_transfer(case, "swap_in", placed, slice(half, None), beside)

    def issue() -> None:
        beside.follow(device)
        beside.enqueue(back.issue)  # first, since on a CPU what is issued here is done when it returns
        out.issue()
        device.follow(beside)

    return [out, back], issue
