"""How long does it take to compute a sequence's K and V again, by length?"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
import torch

from bench.cases import Case
from bench.measure import Benchmark, best_seconds
from bench.rows import Work
from bench.session import Session
from bench.workbench import Workbench
from kernels.attention import usable_attention
from kernels.sequences import Sequences
from kernels.specs import peak_flops
from kernels.transformer import TIMED_PART, Prefill, prepare
from kernels.weights import MODEL_DTYPES

TABLE = "recompute"


def bench_recompute(case: Case, bench_session: Session, benchmark: Benchmark) -> None:
    """A whole prefill: layers, K and V into the pool's blocks, logits of the last token."""
    if case.shape.swap_only:
        pytest.skip(f"{case.model}: {case.shape.swap_only}; its KV cache can only be swapped")
    if case.element not in MODEL_DTYPES:
        pytest.skip(f"no model computes in {case.dtype}; its KV cache can only be swapped")
    if case.length > case.shape.max_positions:
        pytest.skip(f"{case.model} was made for at most {case.shape.max_positions:,} tokens")
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


def make_prefill(case: Case, workbench: Workbench) -> Prefill:
    """The case's sequences of random tokens, ready to be computed into scattered blocks."""
    weights = workbench.weights(case)
    pool, ids = workbench.place_on_device(case)
    token_ids = np.random.default_rng(workbench.seed).integers(0, case.shape.vocab, case.tokens)
    sequences = Sequences(torch.from_numpy(token_ids), [case.length] * case.sequences, np.split(ids, case.sequences))
    return prepare(workbench.device, weights, pool, sequences, compile=workbench.device.backend == "cuda")


def with_fastest_attention(prefill: Prefill, case: Case) -> Prefill:
    """The same prefill on whichever attention backend runs it fastest here; timed only where there is a choice."""
    names = usable_attention(prefill.device, case.shape, case.element, case.length)
    choices = [replace(prefill, attention=name) for name in names]
    if len(choices) == 1:
        return choices[0]
    return min(choices, key=lambda choice: best_seconds(choice.issue, choice.device))


def describe(prefill: Prefill, case: Case) -> dict[str, object]:
    """What ran, and what it was made of."""
    return {
        "attention_backend": prefill.attention,
        "compiled": prefill.pointwise.compiled,
        "not_compiled_because": prefill.pointwise.refusal,
        "kv_writer": prefill.kv_writer.name,
        "no_kv_kernel_because": prefill.kv_writer.refusal,
        "inside": list(TIMED_PART),
        "outside_layers_s": best_seconds(prefill.outside_layers, prefill.device) if case.is_partial else None,
        "kv_layout": case.geometry.layout,
        "kv_block_size": case.geometry.block_size,
    }
