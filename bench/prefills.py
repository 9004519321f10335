"""A case's sequences made ready to be computed: their tokens, their blocks, the fastest attention, and a graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pytest
import torch

from bench.cases import Case
from bench.measure import best_seconds
from bench.memory import uncomputable
from bench.verify import Ids
from bench.workbench import Workbench
from kernels.attention import usable_attention
from kernels.chunked import ChunkedPrefill, prepare_chunks
from kernels.graph import Graph, capture
from kernels.paged_kv import Pool
from kernels.sequences import Sequences
from kernels.step import Step
from kernels.transformer import TIMED_PART, prepare

Computed = TypeVar("Computed", Step, ChunkedPrefill)


@dataclass(frozen=True, eq=False)
class Ready:
    """A prefill that is ready to be timed.

    Attributes
    ----------
    prepare_s : float
        Seconds spent on choosing, compiling and recording.
    detail : dict
        What runs, for the row.
    """

    issue: Callable[[], torch.Tensor]
    prepare_s: float
    detail: dict[str, Any]


def ready_prefill(case: Case, workbench: Workbench) -> Ready:
    """The case's prefill on the fastest attention, recorded as a graph where the device records."""
    start = time.perf_counter()
    if case.chunk_tokens:
        return _ready(make_chunks(case, workbench), case, start)
    return _ready(make_prefill(case, workbench), case, start)


def _ready(made: Computed, case: Case, start: float) -> Ready:
    prefill = with_fastest_attention(made, case)
    graph = graphed(prefill)
    prepare_s = time.perf_counter() - start
    return Ready(graph.issue, prepare_s, describe(prefill, case) | graph_facts(graph))


def skip_unless_computable(case: Case) -> None:
    """Skip a case whose model, type or length our stack does not compute, with the reason."""
    if reason := uncomputable(case):
        pytest.skip(reason)


def computed_flops(case: Case) -> int:
    """FLOPs of the case's prefill: of the tokens that are not cached, which see those that are."""
    cached = case.cached_tokens or 0
    return case.sequences * case.shape.prefill_flops(case.length - cached, cached)


def random_sequences(
    case: Case, lengths: Sequence[int], block_ids: Sequence[Ids], cached: Sequence[int] = (), seed: int = 0
) -> Sequences:
    """Sequences of random tokens of the case's model: `lengths` new ones each behind `cached` ones."""
    token_ids = np.random.default_rng(seed).integers(0, case.shape.vocab, sum(lengths))
    return Sequences(torch.from_numpy(token_ids), list(lengths), list(block_ids), list(cached))


def make_prefill(case: Case, workbench: Workbench) -> Step:
    """The case's sequences of random tokens, ready to be computed in one piece into scattered blocks."""
    device, weights = workbench.device, workbench.weights(case)
    pool, sequences = _placed(case, workbench)
    return prepare(device, weights, pool, sequences, compile=device.backend == "cuda")


def make_chunks(case: Case, workbench: Workbench) -> ChunkedPrefill:
    """The same in chunks of `case.chunk_tokens`."""
    device, weights = workbench.device, workbench.weights(case)
    pool, sequences = _placed(case, workbench)
    assert case.chunk_tokens is not None
    return prepare_chunks(device, weights, pool, sequences, case.chunk_tokens, compile=device.backend == "cuda")


def _placed(case: Case, workbench: Workbench) -> tuple[Pool, Sequences]:
    pool, ids, _ = workbench.place_on_device(case)
    cached = case.cached_tokens or 0
    if cached:
        fill_with_numbers(pool, workbench)
    new, before = [case.length - cached] * case.sequences, [cached] * case.sequences
    return pool, random_sequences(case, new, np.split(ids, case.sequences), before, workbench.seed)


def fill_with_numbers(pool: Pool, workbench: Workbench) -> None:
    """Fill a device pool with N(0, 1), for what is attended to without being computed.

    The arena's random bytes are NaN here and there, and what NaN reaches is NaN: some CPUs compute it more slowly.
    """
    with workbench.device.on_stream(), torch.inference_mode():
        for layer in range(pool.geometry.shape.layers):
            for values in pool.kv(layer):
                values.normal_()
    workbench.device.wait()


def with_fastest_attention(prefill: Computed, case: Case) -> Computed:
    """The same prefill on whichever attention backend runs it fastest here; timed only where there is a choice."""
    runs = [run for step in _steps(prefill) for run, _ in step.parts]
    longest, cached = max(run.length for run in runs), max(run.cached for run in runs)
    names = usable_attention(prefill.device, case.shape, case.element, longest, cached)
    choices = [_on(prefill, name) for name in names]
    if len(choices) == 1:
        return choices[0]
    return min(choices, key=lambda choice: best_seconds(graphed(choice).issue, choice.device))


def _on(prefill: Computed, attention: str) -> Computed:
    if isinstance(prefill, Step):
        return replace(prefill, attention=attention)
    return replace(prefill, chunks=tuple(replace(chunk, attention=attention) for chunk in prefill.chunks))


def graphed(computation: Step | ChunkedPrefill) -> Graph[torch.Tensor]:
    """The computation recorded; as it was where the device records nothing. A recording takes memory: drop it soon."""
    return capture(computation.device, computation.issue)


def graph_facts(graph: Graph[Any]) -> dict[str, Any]:
    """Whether what is timed is a recording, and if not, why."""
    return {"cuda_graph": graph.recorded is not None, "no_graph_because": graph.refusal}


def describe(computation: Step | ChunkedPrefill, case: Case) -> dict[str, Any]:
    """What runs, and what it is made of."""
    steps = _steps(computation)
    pointwise, kv_writer = steps[0].pointwise, steps[0].kv_writer
    return {
        "attention_backend": computation.attention,
        "compiled": pointwise.compiled,
        "not_compiled_because": pointwise.refusal,
        "compile_s": sum(step.pointwise.compile_s for step in steps),
        "kv_writer": kv_writer.name,
        "no_kv_kernel_because": kv_writer.refusal,
        "inside": list(TIMED_PART),
        "outside_layers_s": _outside_layers_s(computation) if case.is_partial else None,
        "kv_layout": case.geometry.layout,
        "kv_block_size": case.geometry.block_size,
    }


def _outside_layers_s(computation: Step | ChunkedPrefill) -> float:
    """Seconds of what no layer does, recorded as the whole is: the host's part must not be scaled with the layers."""
    steps, device = _steps(computation), computation.device
    return best_seconds(capture(device, lambda: [step.outside_layers() for step in steps]).issue, device)


def _steps(computation: Step | ChunkedPrefill) -> Sequence[Step]:
    return computation.chunks if isinstance(computation, ChunkedPrefill) else (computation,)
