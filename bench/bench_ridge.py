"""From how many tokens on is a prefill bound by arithmetic, and what do arithmetic and memory give at most?"""

from __future__ import annotations

import time
from statistics import median

import pytest

from bench.cases import Case
from bench.measure import Benchmark
from bench.prefills import computed_flops, ready_prefill, skip_unless_computable
from bench.rows import Work
from bench.session import Session
from bench.utilization import utilization
from kernels.peaks import prepare_gemm, prepare_memory_copy
from kernels.weights import MODEL_DTYPES

TABLE = "ridge"


def bench_ridge(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """A prefill of some tokens, a square matrix product, or a copy within the device's memory."""
    probe = {"prefill": _prefill, "gemm": _gemm, "memory": _memory}[case.probe or ""]
    probe(case, bench_session, benchmark)


def _prefill(case: Case, session: Session, benchmark: Benchmark) -> None:
    skip_unless_computable(case)
    gemm_flops = session.gemm_flops(case.element)
    ready = ready_prefill(case, session.workbench)
    flops, memory_bytes = computed_flops(case), case.shape.prefill_memory_bytes(case.tokens, case.element)
    row = session.time_case(
        case,
        benchmark,
        ready.issue,
        Work(flops=flops),
        prepare_s=ready.prepare_s,
        verified=False,
        detail=ready.detail | {"memory_bytes": memory_bytes, "flop_per_byte": flops / memory_bytes},
    )
    row["detail"].update(utilization(row, session.device, gemm_flops))


def _gemm(case: Case, session: Session, benchmark: Benchmark) -> None:
    assert case.matrix is not None
    if case.element not in MODEL_DTYPES:
        pytest.skip(f"no matrix product in {case.dtype} here")
    start = time.perf_counter()
    gemm = prepare_gemm(session.device, case.element, case.matrix)
    prepare_s = time.perf_counter() - start
    work = Work(flops=gemm.flops)
    row = session.time_case(case, benchmark, gemm.issue, work, prepare_s=prepare_s, verified=False, detail={})
    row["detail"].update(utilization(row, session.device))


def _memory(case: Case, session: Session, benchmark: Benchmark) -> None:
    assert case.memory_bytes is not None
    start = time.perf_counter()
    copy = prepare_memory_copy(session.device, case.memory_bytes)
    prepare_s = time.perf_counter() - start
    row = session.time_case(case, benchmark, copy.issue, Work(), prepare_s=prepare_s, verified=False, detail={})
    row["detail"]["memory_gbps"] = 2 * case.memory_bytes / median(row["clocks"]["wall_s"]) / 1e9
