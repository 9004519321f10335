"""Rows of the recoveries between swap and recompute: read as they were written, or refused with a sentence."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import recoveries
from analysis.load import QUESTION_FIELDS, BadFile, load, plain_recompute
from tests.analysis import synthetic as planted
from tests.analysis.synthetic import document, write
from tests.analysis.test_load import DAMAGE, places, refusal

PAIRED = planted.interference_row(0.012, 0.010)
JOINED = planted.batching_row(64, 0.012, 0.010, company="decode", company_size=16)
SWAPPED_IN = planted.batching_row(64, 0.012, 0.010, company="prefill", company_size=16, policy="swap")
TOGETHER = [
    planted.recompute_row(0.1, chunk_tokens=512),
    planted.ridge_prefill_row(16, 0.010),
    planted.ridge_gemm_row(4096, 2e14),
    planted.ridge_memory_row(1 << 30, 1.5e12),
    planted.batching_row(64, 0.010),
    JOINED,
    SWAPPED_IN,
    planted.preemptions_row(3, 0.03, "swap_kept"),
    planted.preemptions_row(3, 0.15),
    planted.hybrid_row(0.25, 0.03, 0.02, 0.025),
    PAIRED,
    planted.resume_row(0.03, "swap", 0.011),
    planted.resume_row(0.06),
]


def test_every_kind_of_row_comes_out_as_it_was_written(tmp_path: Path) -> None:
    frame = load(write(tmp_path, document(copy.deepcopy(TOGETHER))))
    assert len(frame) == len(TOGETHER)
    rows = frame.set_index(["recovery", "seq_len"], drop=False).astype(object).where(frame.notna().to_numpy(), None)
    assert rows["chunk_tokens"].tolist()[0] == 512
    assert rows["probe"].tolist()[1:4] == ["prefill", "gemm", "memory"]
    prefill, gemm, memory = (rows.iloc[index] for index in (1, 2, 3))
    assert (prefill["memory_bytes"], memory["memory_bytes"]) == (None, 1 << 30)  # the axis
    assert prefill["least_memory_bytes"] == TOGETHER[1]["extra_info"]["detail"]["memory_bytes"]  # the fact
    assert (gemm["matrix"], gemm["model"], memory["memory_gbps"]) == (4096, None, 1500)
    kept, hybrid, interference, resume = (rows.iloc[index] for index in (7, 9, 10, 11))
    assert kept["bytes_out"] == [1024 << 17, 128 << 17, 128 << 17]
    assert (hybrid["fraction"], hybrid["front_alone_s"], hybrid["rest_alone_s"]) == (0.25, 0.02, 0.025)
    assert interference["baseline_median_s"] == pytest.approx(0.010)
    np.testing.assert_array_equal(interference["baseline_wall_s"], PAIRED["extra_info"]["baseline"]["wall_s"])
    assert (interference["timed"], interference["company_context"], interference["beside_runs"]) == ("company", 256, 9)
    assert (resume["step_alone_s"], resume["baseline_wall_s"]) == (0.011, None)


@pytest.mark.parametrize(
    ("broken", "axes", "sentence"),
    [
        (PAIRED, {"timed": None}, "recovery 'interference' without timed"),
        (PAIRED, {"company_context": None, "method": None}, "without company_context, method"),
        (PAIRED, {"company": None}, "recovery 'interference' without company"),
        (JOINED, {"company_size": None}, "recovery 'batching' without company_size"),
        (SWAPPED_IN, {"direction": None, "block_size": None}, "recovery 'batching' without direction, block_size"),
        (TOGETHER[1], {"probe": None}, "recovery 'ridge' without probe"),
        (TOGETHER[1], {"model": None}, "recovery 'ridge' without model"),
        (TOGETHER[2], {"matrix": None, "dtype": None}, "recovery 'ridge' without matrix, dtype"),
        (TOGETHER[3], {"memory_bytes": None}, "recovery 'ridge' without memory_bytes"),
        (TOGETHER[7], {"growth_tokens": None, "layout": None}, "recovery 'preemptions' without growth_tokens, layout"),
        (TOGETHER[9], {"fraction": None}, "recovery 'hybrid' without fraction"),
        (TOGETHER[11], {"policy": None}, "recovery 'resume' without policy"),
    ],
)
def test_a_question_needs_its_axes(tmp_path: Path, broken: dict[str, Any], axes: dict[str, Any], sentence: str) -> None:
    benchmark = copy.deepcopy(broken)
    benchmark["extra_info"]["case"] |= axes
    assert sentence in refusal(tmp_path, document([benchmark]))


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda i: i.update(baseline=None), "recovery 'interference' beside a decode without its baseline"),
        (lambda i: i.pop("baseline"), "recovery 'interference' beside a decode without its baseline"),
        (lambda i: i["baseline"].pop("issue_s"), "'issue_s' is a required property"),
        (lambda i: i["baseline"].update(wall_s=[0.01] * 8), "baseline: one value a round expected, found {'wall_s': 8"),
        (lambda i: i["baseline"].update(wall_s=[0.01] * 8 + [0]), "baseline: a wall clock of 0 s"),
        (
            lambda i: i["baseline"].update(dict.fromkeys(("wall_s", "issue_s", "device_s"), [0.01] * 8)),
            "'clocks.wall_s': 9}",
        ),
        (lambda i: i["detail"].update(beside_runs="9"), "detail.beside_runs: expected type ['number', 'null']"),
    ],
)
def test_a_broken_baseline(tmp_path: Path, edit: Callable[[dict[str, Any]], Any], sentence: str) -> None:
    benchmark = copy.deepcopy(PAIRED)
    edit(benchmark["extra_info"])
    assert sentence in refusal(tmp_path, document([benchmark]))


@pytest.mark.parametrize("index", [0, 4, 7, 9, 11], ids=["recompute", "alone", "preemptions", "hybrid", "resume"])
def test_a_baseline_where_none_belongs(tmp_path: Path, index: int) -> None:
    benchmark = copy.deepcopy(TOGETHER[index])
    benchmark["extra_info"]["baseline"] = copy.deepcopy(benchmark["extra_info"]["clocks"])
    assert "has no company" in refusal(tmp_path, document([benchmark]))


def test_a_file_from_before_these_questions_still_loads() -> None:
    frame = load(Path(__file__).parents[2] / "results" / "cpu-epyc-2-cores.json")
    assert {"recompute", "swap", "copy"} == set(frame["recovery"])
    assert frame[[*QUESTION_FIELDS, "baseline_wall_s", "mfu_gemm"]].isna().all(axis=None)
    assert plain_recompute(frame).sum() == (frame["recovery"] == "recompute").sum() > 0


def once(benchmark: dict[str, Any]) -> dict[str, Any]:
    """The row with its first round alone."""
    found = copy.deepcopy(benchmark)
    for clocks in (found["extra_info"]["clocks"], found["extra_info"]["baseline"] or {}):
        clocks.update({clock: seconds[:1] for clock, seconds in clocks.items()})
    found["stats"]["data"] = found["stats"]["data"][:1]
    return found


SINGLE = document([once(benchmark) for benchmark in TOGETHER])
ANSWERS = (recoveries.ridge, recoveries.batching, recoveries.preemptions, recoveries.hybrid, recoveries.resume)


@settings(max_examples=100, deadline=None)
@given(place=st.sampled_from([place for place in places(SINGLE) if len(place) > 2]), damage=DAMAGE)
def test_one_damaged_field_is_refused_or_changes_no_slowdown(place: tuple[Any, ...], damage: Any) -> None:
    content: Any = copy.deepcopy(SINGLE)
    holder = content
    for key in place[:-1]:
        holder = holder[key]
    if damage == "delete":
        del holder[place[-1]]
    else:
        holder[place[-1]] = damage
    with tempfile.TemporaryDirectory() as folder:
        try:
            frame = load(write(Path(folder), json.dumps(content)))
        except BadFile:
            return
    for answer in ANSWERS:
        answer(frame)
    assert [one.factor.value for one in recoveries.interference(frame)] == pytest.approx([1.2])


def test_a_ridge_needs_its_flops(tmp_path: Path) -> None:
    benchmark = copy.deepcopy(TOGETHER[2])
    benchmark["extra_info"]["work"]["flops"] = None
    assert "recovery 'ridge' without flops" in refusal(tmp_path, document([benchmark]))
