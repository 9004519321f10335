"""How long does it take to compute a sequence's K and V again, by length?"""

from __future__ import annotations

import time
from statistics import median

from bench.cases import Case
from bench.measure import Benchmark
from bench.prefills import describe, make_prefill, skip_unless_computable, with_fastest_attention
from bench.rows import Work
from bench.session import Session
from kernels.specs import peak_flops

TABLE = "recompute"


def bench_recompute(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """A whole prefill: layers, K and V into the pool's blocks, logits of the last token."""
    skip_unless_computable(case)
    start = time.perf_counter()
    prefill = with_fastest_attention(make_prefill(case, bench_session.workbench), case)
    prepare_s = time.perf_counter() - start

    flops = case.sequences * case.shape.prefill_flops(case.length)
    row = bench_session.time_case(
        case,
        benchmark,
        prefill.issue,
        Work(flops=flops),
        prepare_s=prepare_s,
        verified=False,
        detail=describe(prefill, case),
    )
    facts = bench_session.device.facts()
    peak = peak_flops(facts["name"], case.element) if facts else None
    row["detail"]["mfu"] = peak and flops / median(row["clocks"]["wall_s"]) / peak
