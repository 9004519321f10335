"""Pictures and tables of the recoveries between swap and recompute, on rows whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis.contract import ResultFile
from analysis.load import unmeasured
from analysis.questions import QUESTIONS, answered, draw_all, missing, sheets
from analysis.report import Evidence, markdown
from analysis.sheet import Cell
from kernels.shapes import find
from tests.analysis import synthetic as made
from tests.analysis.answered import benchmarks, frame_of, interference_rows, preemption_rows, resume_rows
from tests.analysis.pictures import legend_of, lines_of, overlaps
from tests.analysis.test_cli import refusal, run

GPU = "NVIDIA A100-SXM4-40GB"
MARKS = [name for name in QUESTIONS if name != "interference"]


@cache
def frame() -> pd.DataFrame:
    return frame_of(benchmarks())


@cache
def cpu() -> pd.DataFrame:
    """One layer of 32, as a CPU times it."""
    return frame_of(benchmarks(layers_timed=1), made.CPU)


@cache
def results() -> dict[str, Sequence[Any]]:
    return answered(frame())


@cache
def pictures() -> dict[str, Figure]:
    return draw_all(results())


def places(figure: Figure, gid: str, panel: int = 0) -> dict[float, float]:
    """y by x of the first line of that name in that panel."""
    line = next(line for line in figure.axes[panel].lines if line.get_gid() == gid)
    return dict(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True))  # type: ignore[arg-type]


def firsts(figure: Figure, gid: str, axis: str) -> list[float]:
    """Where each line of that name begins, over all panels."""
    return [float(np.asarray(getattr(line, f"get_{axis}data")())[0]) for line in lines_of(figure, gid)]


def titles(figure: Figure) -> list[str]:
    return [ax.get_title() for ax in figure.axes if ax.axison]


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_picture_reads_alone(name: str) -> None:
    figure = pictures()[name]
    assert overlaps(figure) == []
    assert all(GPU in title and "llama-3-8b, bfloat16" in title for title in titles(figure))
    entries = legend_of(figure)
    assert "hollow: suspect" in entries
    assert any("(measured)" in entry for entry in entries)
    assert not any(text.get_text() == "CPU" for ax in figure.axes for text in ax.texts)
    units = ("ms", "TFLOP/s", "tokens", "beside / alone")
    for ax in (ax for ax in figure.axes if ax.axison):
        words = f"{ax.get_xlabel()} {ax.get_ylabel()}".lower()
        assert any(unit.lower() in words for unit in units)


def test_ridge_shows_both_roofs_and_where_they_cross() -> None:
    figure = pictures()["ridge"]
    assert places(figure, "prefill")[1] == pytest.approx(10)
    assert places(figure, "prefill", 1)[2048] == pytest.approx(200)
    weights, flops = find("llama-3-8b").weight_bytes("bfloat16"), find("llama-3-8b").prefill_flops
    (memory, compute, _), nbytes = (
        lines_of(figure, "roof"),
        weights + 2 * find("llama-3-8b").kv_bytes_per_token("bfloat16"),
    )
    assert float(np.asarray(memory.get_ydata())[0]) == pytest.approx(nbytes / 1.6e12 * 1e3)
    assert float(np.asarray(compute.get_ydata())[-1]) == pytest.approx(flops(2048) / 250e12 * 1e3)
    assert firsts(figure, "peak", "y") == [pytest.approx(250), pytest.approx(312)]
    (ridge,) = results()["ridge"]
    at = ridge.roofline_tokens.tokens.value
    assert 128 < at < 256
    assert firsts(figure, "turn", "x")[0] == pytest.approx(at)
    assert f"ridge: {at:,.0f} tokens" in titles(figure)[0]
    assert "MFU 64%, 80% of the largest product" in titles(figure)[1]
    assert {"data sheet's peak (published)", "largest matrix product (measured)"} <= set(legend_of(figure))


def test_batching_shows_what_is_added_beside_its_time_alone_and_what_rides_free() -> None:
    figure = pictures()["batching"]
    kinds = [title.splitlines()[2] for title in titles(figure)]
    assert kinds == [
        "recompute in the same pass, company: decode",
        "recompute in the same pass, company: prefill",
        "swap in beside it, company: decode",
        "tokens that add no more than 5% to the step",
    ]
    assert places(figure, "added")[256] == pytest.approx(20)
    assert places(figure, "alone")[256] == pytest.approx(15)
    assert places(figure, "added", 2)[16] == pytest.approx(-0.1)
    free = places(figure, "free", 3)
    assert free[64] == pytest.approx(64)  # 1 ms of 20 ms
    assert firsts(figure, "limit", "y") == [256]  # the swap's 256 tokens ride free, and no more were tried


def test_preemptions_by_policy() -> None:
    figure = pictures()["preemptions"]
    assert places(figure, "recompute")[5] == pytest.approx(400)
    assert places(figure, "swap")[5] == pytest.approx(100)
    assert places(figure, "swap_kept")[5] == pytest.approx(60)
    assert figure.axes[0].get_yscale() == "log"  # 400 ms and 12 ms on one axis
    assert "1,024 tokens, 128 more each time" in titles(figure)[0]


def test_hybrid_shows_the_fastest_way_and_its_best_split() -> None:
    figure = pictures()["hybrid"]
    assert len(titles(figure)) == 1
    assert "cross_layer, scattered, block 16 (the fastest of 2)" in titles(figure)[0]
    assert places(figure, "best") == {10: pytest.approx(56)}
    assert places(figure, "bound")[50] == pytest.approx(150)
    assert 0 not in places(figure, "front")
    assert 100 not in places(figure, "rest")
    assert firsts(figure, "predicted", "x") == [pytest.approx(100 / 6, abs=0.2)]  # 300 f = 60 (1 - f)


def test_interference_by_copy_method() -> None:
    figure = pictures()["interference"]
    step = figure.axes[0]
    assert [tick.get_text() for tick in step.get_yticklabels()] == ["direct_kernel x 16 programs", "memcpy_batch"]
    assert firsts(figure, "company", "x") == [pytest.approx(1.3), pytest.approx(1.1)]
    assert firsts(figure, "swap", "x") == [pytest.approx(1.5)] * 2
    assert "the step, beside it a swap in of 1,024 tokens" in titles(figure)[0]


def test_resume_holds_swap_and_step_against_recompute() -> None:
    figure = pictures()["resume"]
    assert places(figure, "recompute")[4096] == pytest.approx(327.68)
    assert places(figure, "swap")[4096] == pytest.approx(34.576)
    assert places(figure, "step") == {256: pytest.approx(10), 4096: pytest.approx(10)}


@pytest.mark.parametrize("name", MARKS)
def test_a_suspect_row_is_hollow(name: str) -> None:
    hollow = [
        line
        for ax in pictures()[name].axes
        for line in ax.lines
        if str(line.get_gid()).endswith("-suspect") and line.get_markerfacecolor() == "white"
    ]
    assert hollow


def test_a_cpu_and_some_layers_are_said_in_every_panel() -> None:
    for name, figure in draw_all(answered(cpu())).items():
        for ax in (ax for ax in figure.axes if ax.axison):
            assert "CPU, not a GPU figure" in ax.get_title(), name
            assert "1 of 32 layers timed, not scaled" in " ".join(ax.get_title().split()), name
            assert "CPU" in [text.get_text() for text in ax.texts], name


def test_a_cpu_stands_beside_a_gpu_only_if_asked() -> None:
    gpu, on_cpu = (frame_of([*preemption_rows(), *resume_rows()], machine) for machine in (made.A100, made.CPU))
    both = pd.concat([gpu, on_cpu], ignore_index=True)
    backends = {one.subject.backend for found in answered(both).values() for one in found}
    assert backends == {"cuda"}
    asked = answered(both, with_cpu=True)
    assert all({one.subject.backend for one in found} == {"cuda", "cpu"} for found in asked.values())


def test_machines_are_small_multiples() -> None:
    labels = ("cloud A", "cloud B")
    both = [frame_of([*preemption_rows(), *interference_rows()], label=label) for label in labels]
    drawn = draw_all(answered(pd.concat(both, ignore_index=True)))
    for figure in drawn.values():
        assert list(dict.fromkeys(title.split(":")[0] for title in titles(figure))) == list(labels)
        assert overlaps(figure) == []


def test_cells_are_the_same_on_a_table_and_in_json() -> None:
    (sheet,) = sheets(results())["ridge"]
    grid, values = sheet.grid(), sheet.values()
    place = grid.columns.index("TFLOP/s")
    assert [row[place].splitlines()[0] for row in grid.rows][-1] == "200.0"
    assert values["rows"][-1]["tflops"]["value"] == pytest.approx(200)
    assert values["peak_tflops"]["value"] == pytest.approx(250)
    assert [row["suspect"] for row in values["rows"]] == [False, True, False, False, False]
    assert "* suspect" in grid.notes
    assert (values["machine"], values["gpu_figure"], values["layers_timed"]) == (frame()["machine"].iloc[0], True, 32)
    assert (Cell("", "a", None).text, Cell("", "a", 1234).text, Cell("", "a", 0.25, 100.0).text) == (
        "-",
        "1,234",
        "25.00",
    )
    json.dumps({name: [one.values() for one in mine] for name, mine in sheets(results()).items()}, allow_nan=False)


def test_tables_tell_what_pictures_show() -> None:
    known = {name: [one.values() for one in mine] for name, mine in sheets(results()).items()}
    times = {row["preemptions"]: row for row in known["preemptions"][0]["rows"]}
    assert times[5]["recompute_ms"]["value"] == pytest.approx(400)
    assert times[5]["saved_ms"]["value"] == pytest.approx(40)
    assert known["preemptions"][0]["one_more_by_swap_ms"]["value"] == pytest.approx(20)
    (fastest,) = (one for one in known["hybrid"] if one["way"]["layout"] == "cross_layer")
    assert fastest["best_ms"]["value"] == pytest.approx(56)
    assert fastest["best_to_bound"]["value"] == pytest.approx(56 / 54)
    assert fastest["rows"][0]["front_alone_ms"] is None
    beside = {(row["timed"], row["method"]): row["factor"]["value"] for row in known["interference"][0]["rows"]}
    assert beside["swap", "direct_kernel"] == pytest.approx(1.5)
    assert [row["ratio"]["value"] for row in known["resume"][0]["rows"]][1] == pytest.approx(327.68 / 34.576)
    free = {one["policy"]: one["free_tokens"] for one in known["batching"] if one["company"]["kind"] == "decode"}
    assert (free["recompute"]["limit"], free["swap"]["limit"]) == ("", "at least")


def test_the_command_draws_what_there_is_and_says_what_is_missing(tmp_path: Path) -> None:
    some = [*preemption_rows(), *resume_rows()]
    for order, one in enumerate(some):
        one["extra_info"]["order"] = order
    path = made.write(tmp_path, made.document(some))
    result = run("recoveries", path, "--out", f"{tmp_path}/f/")
    assert result.exit_code == 0
    assert {found.name for found in (tmp_path / "f").glob("*.png")} == {"preemptions.png", "resume.png"}
    assert "no rows of ridge, batching, hybrid, interference: measured by a sweep with the tables" in result.stdout
    tables = [line for line in result.stdout.splitlines() if line.startswith(" ")]
    assert max(map(len, tables)) <= 100
    assert "…" not in result.stdout
    assert "CPU" not in result.stdout


def test_the_command_refuses_files_without_such_rows(tmp_path: Path) -> None:
    path = made.write(tmp_path, made.figure19_document(block_sizes=(16,)))
    assert refusal("recoveries", path).startswith(
        "no rows of ridge, batching, preemptions, hybrid, interference, resume"
    )


def test_the_report_has_the_section_only_where_there_are_rows() -> None:
    file = ResultFile(Path("a.json"), None, made.document([]))
    evidence = Evidence([file], frame(), unmeasured([file]), "a.json")
    heading = "## Between swap and recompute, and in company"
    assert heading not in markdown(evidence)
    evidence.found = {"resume": results()["resume"]}
    evidence.pictures = {"resume": ["resume.svg"]}
    text = markdown(evidence)
    assert heading in text
    assert f"### {QUESTIONS['resume'].words}\n\n![{QUESTIONS['resume'].words}](resume.svg)" in text
    assert QUESTIONS["ridge"].words not in text
    assert "ridge" in missing(evidence.found)
