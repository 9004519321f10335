"""How long do a sequence's blocks take across the link, out and in, by copy method, layout and block size?"""

from __future__ import annotations

import pytest

from bench.cases import DIRECTIONS, Case
from bench.measure import Benchmark
from bench.rows import Work
from bench.session import Session
from bench.transfers import make_transfer
from bench.verify import verify_all
from kernels import copy_methods

TABLE = "swap"


def bench_swap(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """One direction of a swap, every byte of it verified before it is timed."""
    assert case.method is not None
    assert case.direction in DIRECTIONS
    device = bench_session.device
    if reason := copy_methods.find(case.method).unavailable(device):
        pytest.skip(reason)
    placed = bench_session.workbench.place(case, bench_session.axes(case).pool_tokens)
    transfer = make_transfer(case, case.direction, placed, slice(None), device)
    verify_all(transfer.issue, device, [transfer.carried])
    bench_session.time_case(
        case,
        benchmark,
        transfer.issue,
        Work.of_plans(transfer.plan),
        prepare_s=transfer.prepare_s,
        verified=True,
        detail=transfer.facts(),
    )
