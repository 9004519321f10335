"""A case's sequences made ready to be computed: their tokens, their blocks, and the fastest attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from bench.cases import Case
from bench.measure import best_seconds
from bench.verify import Ids
from bench.workbench import Workbench
from kernels.attention import usable_attention
from kernels.sequences import Sequences
from kernels.transformer import TIMED_PART, Prefill, prepare
from kernels.weights import MODEL_DTYPES


def skip_unless_computable(case: Case) -> None:
    """Skip a case whose model, type or length our stack does not compute, with the reason."""
    if case.shape.swap_only:
        pytest.skip(f"{case.model}: {case.shape.swap_only}; its KV cache can only be swapped")
    if case.element not in MODEL_DTYPES:
        pytest.skip(f"no model computes in {case.dtype}; its KV cache can only be swapped")
    if max([case.length, *case.company_lengths]) > case.shape.max_positions:
        pytest.skip(f"{case.model} was made for at most {case.shape.max_positions:,} tokens")


def random_sequences(
    case: Case, lengths: Sequence[int], block_ids: Sequence[Ids], cached: Sequence[int] = (), seed: int = 0
) -> Sequences:
    """Sequences of random tokens of the case's model: `lengths` new ones each behind `cached` ones."""
    token_ids = np.random.default_rng(seed).integers(0, case.shape.vocab, sum(lengths))
    return Sequences(torch.from_numpy(token_ids), list(lengths), list(block_ids), list(cached))


def make_prefill(case: Case, workbench: Workbench) -> Prefill:
    """The case's sequences of random tokens, ready to be computed into scattered blocks."""
    weights = workbench.weights(case)
    pool, ids, _ = workbench.place_on_device(case)
    lengths = [case.length] * case.sequences
    sequences = random_sequences(case, lengths, np.split(ids, case.sequences), seed=workbench.seed)
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
