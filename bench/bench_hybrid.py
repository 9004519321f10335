"""How long does a sequence take to come back if its front is computed while the rest is swapped in, by the fraction?"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from bench.cases import Case
from bench.measure import Benchmark, best_seconds
from bench.preempted import Preempted, place_preempted, skip_unless_copied
from bench.prefills import describe, graph_facts, skip_unless_computable, with_fastest_attention
from bench.rows import Work
from bench.session import Session
from bench.verify import verify_all
from kernels.graph import capture
from kernels.recovery import Hybrid, prepare_hybrid
from kernels.transformer import TIMED_PART, Prefill

TABLE = "hybrid"
LAYERS_PART = TIMED_PART[: TIMED_PART.index("final_norm")]


def bench_hybrid(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """K and V of the whole sequence, without logits; what is swapped is verified with the front computed beside it."""
    device = bench_session.device
    skip_unless_computable(case)
    skip_unless_copied(case, device)
    preempted = place_preempted(case, bench_session)
    start = time.perf_counter()
    hybrid, detail = make_hybrid(case, bench_session, preempted)
    prepare_s = time.perf_counter() - start
    if hybrid.rest:
        verify_all(hybrid.issue, device, [preempted.carried(hybrid.front_tokens[0], case.length)])
    bench_session.time_case(
        case,
        benchmark,
        hybrid.issue,
        work_of(case, hybrid),
        prepare_s=prepare_s,
        verified=hybrid.rest is not None,
        detail=detail | alone(hybrid),
    )


def make_hybrid(case: Case, session: Session, preempted: Preempted) -> tuple[Hybrid, dict[str, Any]]:
    """The hybrid with its front on the fastest attention and, where the device has them, as a graph; and what it is."""
    assert case.fraction is not None
    device, weights = session.device, session.workbench.weights(case)
    hybrid = prepare_hybrid(
        device,
        weights,
        preempted.pool,
        preempted.sequences,
        preempted.host,
        case.fraction,
        resume=False,
        compile=device.backend == "cuda",
    )
    if hybrid.front is None:
        return hybrid, {}
    assert isinstance(hybrid.front, Prefill)
    front = with_fastest_attention(hybrid.front, case)
    graph = capture(device, front.fill)
    detail = describe(front, case) | graph_facts(graph) | {"inside": list(LAYERS_PART)}
    return replace(hybrid, front=front, compute=graph.issue), detail


def work_of(case: Case, hybrid: Hybrid) -> Work:
    """FLOPs of the front, bytes of the rest."""
    tokens, swapped = hybrid.front_tokens[0], Work.of_plans(hybrid.rest.plan) if hybrid.rest else Work()
    flops = case.sequences * (case.shape.linear_flops(tokens) + case.shape.attention_flops(tokens))
    return replace(swapped, flops=flops or None)


def alone(hybrid: Hybrid) -> dict[str, Any]:
    """How many tokens of a sequence are computed, and what each part takes without the other."""
    return {
        "front_tokens": hybrid.front_tokens[0],
        "front_alone_s": best_seconds(hybrid.compute, hybrid.device) if hybrid.compute else None,
        "rest_alone_s": best_seconds(hybrid.rest.issue, hybrid.rest.device) if hybrid.rest else None,
    }
