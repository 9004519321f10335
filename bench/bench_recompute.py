"""How long does it take to compute a sequence's K and V again, by length; in chunks, and behind a cached prefix?"""

from __future__ import annotations

from bench.cases import Case
from bench.measure import Benchmark
from bench.prefills import computed_flops, ready_prefill, skip_unless_computable
from bench.rows import Work
from bench.session import Session
from bench.utilization import utilization

TABLE = "recompute"


def bench_recompute(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """A prefill of all that is not cached: layers, K and V into the pool's blocks, logits of the last token."""
    skip_unless_computable(case)
    gemm_flops = bench_session.gemm_flops(case.element)
    ready = ready_prefill(case, bench_session.workbench)
    row = bench_session.time_case(
        case,
        benchmark,
        ready.issue,
        Work(flops=computed_flops(case)),
        prepare_s=ready.prepare_s,
        verified=False,
        detail=ready.detail,
    )
    row["detail"].update(utilization(row, bench_session.device, gemm_flops))
