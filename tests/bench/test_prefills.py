from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from bench import prefills
from bench.cases import Case
from bench.nvml import Nvml
from bench.prefills import describe, make_chunks, make_prefill, ready_prefill, with_fastest_attention
from bench.workbench import Workbench
from kernels import shapes
from kernels.chunked import ChunkedPrefill
from kernels.device import open_device
from kernels.graph import Graph
from kernels.shapes import ModelShape

SMALL = ModelShape("small", layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=48, vocab=90)
CPU = open_device("cpu")
CASE = Case("recompute", model="small", dtype="float32", layers_timed=2, layers_model=2, seq_len=40, batch=2)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "SHAPES", shapes.SHAPES | {"small": SMALL})


def workbench(case: Case) -> Workbench:
    return Workbench(CPU, Nvml(None, present=False), [(case, 0)], seed=3)


def test_a_cached_prefix_is_attended_to_and_not_computed() -> None:
    case = replace(CASE, cached_tokens=32)
    prefill = make_prefill(case, workbench(case))
    assert [(run.batch, run.length, run.cached) for run, _ in prefill.parts] == [(2, 8, 32)]
    assert prefill.issue().isfinite().all()  # the arena's own bytes are NaN here and there


@pytest.mark.parametrize("case", [CASE, replace(CASE, chunk_tokens=12), replace(CASE, cached_tokens=16)])
def test_a_ready_prefill_gives_logits_of_every_sequence_and_says_what_runs(case: Case) -> None:
    ready = ready_prefill(case, workbench(case))
    assert ready.issue().shape == (2, SMALL.vocab)
    assert ready.prepare_s > 0
    assert ready.detail["attention_backend"] == "FLASH_ATTENTION"
    assert (ready.detail["cuda_graph"], ready.detail["outside_layers_s"]) == (False, None)


def test_chunks_compute_what_one_piece_does() -> None:
    chunked = replace(CASE, chunk_tokens=12)
    whole = make_prefill(CASE, workbench(CASE)).issue()
    made = make_chunks(chunked, workbench(chunked))
    assert [len(chunk.forward.token_ids) for chunk in made.chunks] == [12] * 6 + [8]
    torch.testing.assert_close(made.issue(), whole)


def test_the_attention_is_chosen_by_the_time_of_what_will_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks all take it; it must run the longest chunk behind the longest prefix."""
    asked: list[Any] = []

    def usable(*arguments: Any) -> tuple[str, ...]:
        asked.append(arguments[3:])
        return "MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"

    seconds = {"MATH": 3.0, "FLASH_ATTENTION": 1.0, "EFFICIENT_ATTENTION": 2.0}
    timed: list[Any] = []

    def best_seconds(issue: Any, device: object) -> float:
        timed.append(issue.__self__)
        return seconds[timed[-1].plain.__self__.attention]

    case = replace(CASE, chunk_tokens=30)
    made = make_chunks(case, workbench(case))
    monkeypatch.setattr(prefills, "usable_attention", usable)
    monkeypatch.setattr(prefills, "best_seconds", best_seconds)
    chosen = with_fastest_attention(made, case)
    assert isinstance(chosen, ChunkedPrefill)
    assert {chunk.attention for chunk in chosen.chunks} == {"FLASH_ATTENTION"}
    assert asked == [(30, 30)]
    assert all(isinstance(graph, Graph) for graph in timed)


def test_what_compiling_took_is_that_of_every_chunk() -> None:
    case = replace(CASE, chunk_tokens=30)
    made = make_chunks(case, workbench(case))
    slow = [
        replace(chunk, forward=replace(chunk.forward, pointwise=replace(chunk.pointwise, compile_s=seconds)))
        for chunk, seconds in zip(made.chunks, (2.0, 0.5, 0.25), strict=True)
    ]
    assert describe(ChunkedPrefill(tuple(slow)), case)["compile_s"] == 2.75
