"""How long do a sequence's blocks take across the link, out and in, by copy method, layout and block size?"""

from __future__ import annotations

import time

import pytest

from bench.cases import Case
from bench.measure import Benchmark
from bench.rows import Work
from bench.session import Session, gbps
from bench.verify import verify_copy
from kernels import copy_methods, copy_plan

TABLE = "swap"


def bench_swap(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """One direction of a swap, every byte of it verified before it is timed."""
    assert case.method is not None
    device, method = bench_session.device, copy_methods.find(case.method)
    if reason := method.unavailable(device):
        pytest.skip(reason)
    placed = bench_session.workbench.place(case, bench_session.axes(case).pool_tokens)
    ends = ((placed.device, placed.device_ids), (placed.host, placed.host_ids))
    (src, src_ids), (dst, dst_ids) = ends if case.direction == "swap_out" else reversed(ends)

    start = time.perf_counter()
    plan = copy_plan.build(src, src_ids, dst, dst_ids)
    issue = method.prepare(plan, device)
    device.wait()
    prepare_s = time.perf_counter() - start

    verify_copy(issue, device, src, src_ids, dst, dst_ids)
    detail = {"ceiling_gbps": bench_session.ceiling(case)}
    row = bench_session.time_case(
        case, benchmark, issue, Work.of_plan(plan), prepare_s=prepare_s, verified=True, detail=detail
    )
    if case.is_ceiling:
        bench_session.note_ceiling(case, gbps(row))
