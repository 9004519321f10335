"""What does a sequence cost that is preempted again and again while it grows, by how it comes back each time?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.cases import Case
from bench.measure import Benchmark
from bench.preempted import place_preempted, skip_unless_copied
from bench.prefills import describe, graph_facts, random_sequences, skip_unless_computable, with_fastest_attention
from bench.rows import Work
from bench.session import Session
from bench.verify import verify_all
from kernels.graph import capture
from kernels.preemptions import Preemptions, growing, prepare_recomputes, prepare_swaps
from kernels.transformer import prepare

TABLE = "preemptions"


@dataclass(frozen=True, eq=False)
class Prepared:
    """All preemptions of a case, ready to be timed."""

    preemptions: Preemptions
    issue: Callable[[], object]
    work: Work
    verified: bool
    prepare_s: float
    detail: dict[str, Any]


def bench_preemptions(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """Every preemption of the sequence, one behind the other in one round."""
    made = recomputed(case, bench_session) if case.policy == "recompute" else swapped(case, bench_session)
    facts = {
        "lengths": made.preemptions.lengths,
        "bytes_out": made.preemptions.bytes_out,
        "bytes_in": made.preemptions.bytes_in,
    }
    bench_session.time_case(
        case,
        benchmark,
        made.issue,
        made.work,
        prepare_s=made.prepare_s,
        verified=made.verified,
        detail=made.detail | facts,
    )


def recomputed(case: Case, session: Session) -> Prepared:
    """A whole prefill after each preemption, all on the attention that is fastest after the last one."""
    skip_unless_computable(case)
    device, lengths, start = session.device, lengths_of(case), time.perf_counter()
    pool, ids, _ = session.workbench.place_on_device(case)
    weights, whole = session.workbench.weights(case), [case.length] * case.sequences
    sequences = random_sequences(case, whole, np.split(ids, case.sequences), seed=session.seed)
    last = with_fastest_attention(prepare(device, weights, pool, sequences, compile=device.backend == "cuda"), case)
    made = prepare_recomputes(device, weights, pool, sequences, lengths, last.attention, last.pointwise.compiled)
    graph = capture(device, made.issue)
    prepare_s = time.perf_counter() - start
    flops = case.sequences * sum(map(case.shape.prefill_flops, lengths))
    detail = describe(last, case) | graph_facts(graph)
    return Prepared(made, graph.issue, Work(flops=flops), verified=False, prepare_s=prepare_s, detail=detail)


def swapped(case: Case, session: Session) -> Prepared:
    """Out and in at each preemption.

    Verified are what the host holds once all is done, and what a swap in of it brings back.
    """
    device, lengths = session.device, lengths_of(case)
    skip_unless_copied(case, device)
    preempted = place_preempted(case, session)
    start = time.perf_counter()
    made = prepare_swaps(
        device, preempted.pool, preempted.sequences, preempted.host, lengths, keep=case.policy == "swap_kept"
    )
    device.wait()
    prepare_s = time.perf_counter() - start
    verify_all(made.issue, device, [preempted.carried(0, case.length, "swap_out")])
    verify_all(made.each[-1].back.issue, device, [preempted.carried(0, case.length)])
    return Prepared(made, made.issue, Work.of_plans(*made.plans), verified=True, prepare_s=prepare_s, detail={})


def lengths_of(case: Case) -> list[int]:
    """Tokens of the sequence at each preemption."""
    assert case.seq_len is not None
    assert case.growth_tokens is not None
    assert case.preemptions is not None
    return growing(case.seq_len, case.growth_tokens, case.preemptions)
