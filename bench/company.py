"""What a sequence comes back to: the decode step or the prefill that a case calls its company, ready to be issued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from bench.cases import Case
from bench.prefills import (
    describe,
    fill_with_numbers,
    graph_facts,
    graphed,
    random_sequences,
    with_fastest_attention,
)
from bench.verify import Ids
from bench.workbench import Workbench
from kernels.device import Device
from kernels.graph import Graph
from kernels.mixed import prepare_mixed
from kernels.paged_kv import Pool
from kernels.step import PAGED, Step


@dataclass(frozen=True, eq=False)
class ReadyStep:
    """A step that is ready to be timed.

    Attributes
    ----------
    step : Step
        The pass.
    graph : Graph
        Its recording, where the device records.
    """

    step: Step
    graph: Graph[torch.Tensor]

    def detail(self, case: Case) -> dict[str, Any]:
        """What runs, for the row."""
        gathered = self.step.attention if case.company == "decode" else None
        decoding = PAGED if self.step.paged else gathered
        return describe(self.step, case) | graph_facts(self.graph) | {"decode_attention": decoding}


def ready_steps(
    case: Case,
    workbench: Workbench,
    device: Device,
    pool: Pool,
    company_ids: Sequence[Ids],
    joining: Sequence[Sequence[Ids]],
) -> list[ReadyStep]:
    """A step of the company for each entry of `joining`, which has the blocks of the sequences that join it.

    Those are prefilled whole, as a recompute does. All steps compute the same tokens of the company, with one set of
    weights, in one pool, on one attention; all are recorded or none is, so that they differ in who joins and in nothing
    else.

    Parameters
    ----------
    device : Device
        Whose stream the steps are for: the workbench's device or its sibling.
    joining : sequence of sequence of numpy.ndarray
        The one of the first entry chooses the attention.
    """
    if case.company == "decode":
        fill_with_numbers(pool, workbench)
    made = [_make(case, workbench, device, pool, company_ids, ids) for ids in joining]
    fastest = with_fastest_attention(made[0], case).attention if made[0].parts else PAGED
    made = [replace(step, attention=fastest) if step.parts else step for step in made]
    graphs = [graphed(step) for step in made]
    refusal = next((graph.refusal for graph in graphs if graph.refusal), None)
    if refusal:
        graphs = [replace(graph, recorded=None, refusal=refusal) for graph in graphs]
    return [ReadyStep(step, graph) for step, graph in zip(made, graphs, strict=True)]


def company_flops(case: Case) -> int:
    """FLOPs of one step of the company."""
    new, cached = _new_and_cached(case)
    return sum(case.shape.prefill_flops(*tokens) for tokens in zip(new, cached, strict=True))


def _make(
    case: Case, workbench: Workbench, device: Device, pool: Pool, company_ids: Sequence[Ids], joining: Sequence[Ids]
) -> Step:
    new, cached = _new_and_cached(case)
    lengths, before = [*new, *[case.length] * len(joining)], [*cached, *[0] * len(joining)]
    sequences = random_sequences(case, lengths, [*company_ids, *joining], before, workbench.seed)
    weights = workbench.weights(case)
    return prepare_mixed(device, weights, pool, sequences, compile=device.backend == "cuda")


def _new_and_cached(case: Case) -> tuple[list[int], list[int]]:
    """New tokens of each sequence of the company, and those before them."""
    context = (case.company_context or 0) if case.company == "decode" else 0
    return [length - context for length in case.company_lengths], [context] * len(case.company_lengths)
