"""Figure 19's numbers against planted constants, and its drawing against what a reader must find on it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.contract import NothingToDraw
from analysis.figure19 import Panel, Selection, panels
from analysis.figures import draw_figure19, save
from analysis.intervals import Estimate, Interval
from analysis.load import load
from analysis.paper import Reading, crossings, readings, verdict
from kernels import shapes
from tests.analysis.synthetic import A100, CPU, Planted, case, figure19_document, row, write

EXACT = Planted(noise=0)


def frame_of(folder: Path, *documents: dict[str, Any]) -> pd.DataFrame:
    """Documents through files and the loader."""
    return load([write(folder, content, f"{index}.json") for index, content in enumerate(documents)])


def only_panel(folder: Path, *documents: dict[str, Any], selection: Selection | None = None) -> Panel:
    """The one panel that documents make."""
    found, _ = panels(frame_of(folder, *documents), selection)
    assert len(found) == 1
    return found[0]


def planted_crossing(planted: Planted, model: str = "opt-13b", tokens: int = 256) -> float:
    """2 x (fragments x overhead + bytes / bandwidth) = recompute, solved for the block size by hand."""
    shape = shapes.find(model)
    copying_s = tokens * shape.kv_bytes_per_token("float16") / planted.bandwidth
    return 2 * shape.layers * tokens * planted.overhead_s / (planted.recompute_s / 2 - copying_s)


def test_points_are_the_planted_times(tmp_path: Path) -> None:
    panel = only_panel(tmp_path, figure19_document(EXACT))
    assert [point.block_size for point in panel.points] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    for point in panel.points:
        swap_s = EXACT.swap_s("opt-13b", "layer_split", point.block_size, 256, 40)
        assert point.swap_in is not None
        assert point.swap_in_out is not None
        assert point.ratio is not None
        assert point.swap_in.value == pytest.approx(swap_s)
        assert point.swap_in_out.value == pytest.approx(2 * swap_s)
        assert point.recompute.value == pytest.approx(0.0346)
        assert point.ratio.value == pytest.approx(0.0346 / (2 * swap_s))


@settings(max_examples=20, deadline=None)
@given(st.floats(0.5, 7.5))
def test_a_planted_crossing_is_found_between_its_neighbours(at: float) -> None:
    """Log ratio is linear in log2(block size) here, so that interpolation must hit it."""
    ratios = [(2**k, math.exp(0.7 * (k - at))) for k in range(9)]
    (found,) = crossings(ratios)
    assert found.block_size == pytest.approx(2**at)
    assert (found.faster_below, found.faster_above) == ("recompute", "swap")


def test_the_crossing_of_a_file_is_the_planted_one(tmp_path: Path) -> None:
    planted = Planted(noise=0, bandwidth=25e9)
    panel = only_panel(tmp_path, figure19_document(planted))
    (found,) = crossings([(size, ratio.value) for size, ratio in panel.pairs])
    expected = planted_crossing(planted)
    assert 1 < expected < 256
    assert found.block_size == pytest.approx(expected, rel=0.05)  # between powers of two the curve bends a little
    assert verdict(panel).startswith(f"at {found.block_size:.3g} tokens (recompute faster below, swap above)")


def test_several_crossings_and_touching_ones() -> None:
    several = crossings([(1, 0.5), (4, 2.0), (16, 0.5)])
    assert [c.block_size for c in several] == pytest.approx([2, 8])
    assert [c.faster_above for c in several] == ["swap", "recompute"]
    (through,) = crossings([(1, 0.5), (8, 1.0), (16, 2.0)])
    assert through.block_size == pytest.approx(8)
    assert crossings([(1, 0.5), (8, 1.0), (16, 0.5)]) == []


@pytest.mark.parametrize(("recompute_s", "side"), [(1.0, "swap"), (0.001, "recompute")])
def test_never_crossing_says_who_wins(tmp_path: Path, recompute_s: float, side: str) -> None:
    panel = only_panel(tmp_path, figure19_document(Planted(noise=0, recompute_s=recompute_s)))
    assert verdict(panel) == f"never within 1..256: {side} always faster"


def test_both_readings_raw_and_with_the_authors_factor(tmp_path: Path) -> None:
    """200 MiB a direction at 13 GB/s and 80 x 3 us: 32.74 ms in+out at block 256, recompute 40 ms: 1.222 and 1.100."""
    panel = only_panel(tmp_path, figure19_document(Planted(noise=0, recompute_s=0.040)))
    found = {(line.name, line.factor): line for line in readings(panel)}
    assert found["A", 1.0].largest.value == pytest.approx(1.222, abs=1e-3)
    assert found["B", 0.9].largest.value == pytest.approx(1.100, abs=1e-3)
    assert {key: line.holds for key, line in found.items()} == {
        ("A", 1.0): False,
        ("A", 0.9): False,
        ("B", 1.0): False,
        ("B", 0.9): True,
    }
    assert {line.block_size for line in found.values()} == {256}


def test_reading_a_holds_where_recompute_is_a_fifth(tmp_path: Path) -> None:
    panel = only_panel(tmp_path, figure19_document(Planted(noise=0, recompute_s=0.006)))
    assert [line.holds for line in readings(panel)] == [True] * 4


def test_a_limit_within_the_interval_is_said() -> None:
    class Wide(Estimate):
        interval = Interval(1.1, 1.3)

    assert not Reading("B", "", 1.0, 1.2, Wide(1.15), 1).clear
    assert Reading("B", "", 1.0, 1.4, Wide(1.15), 1).clear
    assert Reading("B", "", 1.0, 1.2, Estimate(1.15), 1).clear


def test_fewer_layers_are_scaled_and_said(tmp_path: Path) -> None:
    panel = only_panel(tmp_path, figure19_document(EXACT, layers=4))
    whole = only_panel(tmp_path, figure19_document(EXACT))
    assert panel.scaled_lines == ["swap and recompute: 4 of 40 layers timed, scaled to all"]
    assert whole.scaled_lines == []
    for scaled, measured in zip(panel.pairs, whole.pairs, strict=True):
        assert scaled[1].value == pytest.approx(measured[1].value)


def test_rows_of_all_layers_stand_before_scaled_ones(tmp_path: Path) -> None:
    content = figure19_document(EXACT)
    content["benchmarks"].append(row(case(layers=4), [9.0], 99))
    assert only_panel(tmp_path, content).points[0].recompute.value == pytest.approx(0.0346)


def test_cross_layer_with_fewer_layers_is_left_out_with_a_note(tmp_path: Path) -> None:
    partial = frame_of(tmp_path, figure19_document(EXACT, layout="cross_layer", layers=4))
    with pytest.raises(NothingToDraw, match="no swap rows"):
        panels(partial, Selection(layouts=("cross_layer",)))
    content = figure19_document(EXACT, layout="cross_layer", layers=4)
    content["benchmarks"] += figure19_document(EXACT)["benchmarks"]
    _, notes = panels(frame_of(tmp_path, content))
    (note,) = notes
    assert note.startswith("18 rows left out: 4 of 40 layers timed: layout cross_layer would have larger fragments")


def test_sessions_of_one_machine_are_pooled(tmp_path: Path) -> None:
    documents = [figure19_document(Planted(noise=0.02), session=name) for name in ("s1", "s22")]
    assert only_panel(tmp_path, *documents).points[0].recompute.interval is not None


def test_a_swap_that_was_not_verified_has_no_number(tmp_path: Path) -> None:
    content = figure19_document(EXACT)
    content["benchmarks"][1]["extra_info"]["verified"] = False
    found, notes = panels(frame_of(tmp_path, content))
    assert found[0].points[0].swap_out is None
    assert found[0].points[0].ratio is None
    assert found[0].pairs[0][0] == 2
    assert notes == ["1 swap rows left out: their bytes were not verified"]


def test_two_cases_in_one_place_are_not_averaged(tmp_path: Path) -> None:
    content = figure19_document(EXACT)
    content["benchmarks"] += [row(case(compiled=flag), [0.1], 90 + flag) for flag in (False, True)]
    assert only_panel(tmp_path, content).points[0].recompute.value == pytest.approx(0.0346)
    del content["benchmarks"][0]
    with pytest.raises(NothingToDraw, match="recompute rows of one place in the figure differ in compiled"):
        panels(frame_of(tmp_path, content))


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        (Selection(methods=("memcpy_batch",)), "no swap rows with method memcpy_batch; there are: memcpy_loop"),
        (Selection(layouts=("cross_layer",)), "no swap rows with layout cross_layer; there are: layer_split"),
        (Selection(placements=("runs-8",)), "no swap rows with placement runs-8; there are: scattered"),
        (Selection(models=("opt-99b",)), "no rows with model opt-99b; there are: opt-13b"),
        (Selection(seq_lens=(512,)), "no rows with seq_len 512; there are: 256"),
    ],
)
def test_what_was_asked_for_and_is_missing(tmp_path: Path, selection: Selection, sentence: str) -> None:
    with pytest.raises(NothingToDraw, match=sentence):
        panels(frame_of(tmp_path, figure19_document()), selection)


def test_a_missing_half_is_named(tmp_path: Path) -> None:
    content = figure19_document()
    swaps, recomputes = dict(content), dict(content)
    swaps["benchmarks"], recomputes["benchmarks"] = content["benchmarks"][1:], content["benchmarks"][:1]
    with pytest.raises(NothingToDraw, match="no recompute rows"):
        panels(frame_of(tmp_path, swaps))
    with pytest.raises(NothingToDraw, match="no swap rows"):
        panels(frame_of(tmp_path, recomputes))
    other = swaps | {"benchmarks": [row(case("llama-3-8b"), [0.1], 99), *swaps["benchmarks"]]}
    with pytest.raises(NothingToDraw, match=r"no pair to compare: swap in and out of NVIDIA.*opt-13b.*llama-3-8b"):
        panels(frame_of(tmp_path, other))


def test_cpu_panels_stay_out_of_gpu_figures_unless_asked(tmp_path: Path) -> None:
    frame = frame_of(tmp_path, figure19_document(), figure19_document(machine=CPU, session="cpu"))
    found, notes = panels(frame)
    assert [panel.backend for panel in found] == ["cuda"]
    assert notes == ["1 CPU panels left out beside GPU ones; --with-cpu draws them"]
    both, _ = panels(frame, Selection(with_cpu=True))
    assert sorted(panel.backend for panel in both) == ["cpu", "cuda"]
    alone, _ = panels(frame[frame["backend"] == "cpu"])
    assert [panel.backend for panel in alone] == ["cpu"]


def drawn(folder: Path, **options: Any) -> tuple[Figure, Axes]:
    """A figure of one panel, and its axes, with positions worked out."""
    figure = draw_figure19([only_panel(folder, figure19_document(**options))])
    figure.canvas.draw()
    return figure, figure.axes[0]


def text_of(figure: Figure) -> list[str]:
    """The entries of the shared legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_axes_carry_units_and_powers_of_two(tmp_path: Path) -> None:
    _, ax = drawn(tmp_path)
    assert [label.get_text() for label in ax.get_xticklabels()] == [str(2**k) for k in range(9)]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Block size (tokens)", "Time (ms)")
    assert ax.get_yscale() == "linear"
    assert ax.get_ylim()[0] == 0
    for fact in ("NVIDIA A100-SXM4-40GB", "PCIe 4 x16", "opt-13b, float16, 256 tokens", "memcpy_loop", "layer_split"):
        assert fact in ax.get_title()
    assert [text.get_text() for text in ax.texts] == []


def test_a_logarithmic_axis_has_plain_numbers(tmp_path: Path) -> None:
    figure = draw_figure19([only_panel(tmp_path, figure19_document())], log_y=True)
    figure.canvas.draw()
    (ax,) = figure.axes
    low, high = ax.get_ylim()
    shown = [t.get_text() for t in ax.get_yticklabels() if low <= t.get_position()[1] <= high]
    assert shown == ["20", "50", "100"]


def test_series_differ_in_black_and_white_and_name_their_origin(tmp_path: Path) -> None:
    figure, ax = drawn(tmp_path)
    assert text_of(figure)[:4] == [f"{s} (measured)" for s in ("Recompute", "Swap in", "Swap out", "Swap in+out")]
    assert text_of(figure)[4:] == ["95 % interval of the median"]
    lines = [line for line in ax.lines if line.get_gid() in ("recompute", "swap_in", "swap_out", "swap_in_out")]
    marks = [line for line in ax.lines if str(line.get_gid()).endswith("-clean")]
    assert len({str(line.get_linestyle()) for line in lines}) == 4
    assert len({str(line.get_marker()) for line in marks}) == 4
    heights = set(next(line for line in lines if line.get_gid() == "recompute").get_ydata())  # type: ignore[arg-type]
    assert len(heights) == 1


def test_a_cpu_figure_cannot_be_taken_for_a_gpu_one(tmp_path: Path) -> None:
    _, ax = drawn(tmp_path, machine=CPU, layers=4)
    (watermark,) = ax.texts
    assert watermark.get_text() == "CPU"
    assert float(watermark.get_fontsize()) >= 72
    assert "CPU, not a GPU figure" in ax.get_title()
    assert "4 of 40 layers timed, scaled to all" in ax.get_title()


def test_suspect_rows_have_hollow_marks(tmp_path: Path) -> None:
    content = figure19_document()
    content["benchmarks"][3]["extra_info"]["suspect"] = ["clocks held down"]  # swap out at 2 tokens
    panel = only_panel(tmp_path, content)
    assert panel.suspect == {"swap_out": ("clocks held down",)}
    assert [point.block_size for point in panel.points if "swap_in_out" in point.suspect] == [2]
    figure = draw_figure19([panel])
    hollow = [line for line in figure.axes[0].lines if str(line.get_gid()).endswith("-suspect")]
    assert {str(line.get_gid()): list(line.get_xdata()) for line in hollow if len(line.get_xdata())} == {  # type: ignore[arg-type]
        "swap_out-suspect": [2],
        "swap_in_out-suspect": [2],
    }
    assert {line.get_markerfacecolor() for line in hollow} == {"white"}
    assert "hollow: suspect" in text_of(figure)


def test_one_round_has_no_band(tmp_path: Path) -> None:
    figure, _ = drawn(tmp_path, rounds=1)
    assert "95 % interval of the median" not in text_of(figure)


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_nothing_overlaps_and_nothing_is_cut_off(tmp_path: Path, count: int) -> None:
    lens = {1: [256], 2: [256, 512], 4: [256, 512, 1024, 2048], 6: [256, 512, 1024, 2048, 4096, 8192]}[count]
    long_name = A100 | {"gpu": {"name": "NVIDIA A100-SXM4-40GB with a name much longer than any GPU has had so far"}}
    found, _ = panels(frame_of(tmp_path, figure19_document(seq_lens=lens, machine=long_name, layers=4, rounds=2)))
    figure = draw_figure19(found)
    figure.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in figure.axes if ax.axison]
    boxes.append(figure.legends[0].get_window_extent())
    assert len(boxes) == count + 1
    for index, box in enumerate(boxes):
        assert box is not None
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1
        assert box.y1 <= figure.bbox.y1 + 1
        assert not any(box.overlaps(other) for other in boxes[:index] if other is not None)


def test_png_and_svg_are_written_whole_and_alike(tmp_path: Path) -> None:
    figure, _ = drawn(tmp_path)
    folder = tmp_path / "new" / "deep"
    png, svg = save(figure, folder / "figure19")
    assert png.read_bytes().startswith(b"\x89PNG")
    first = svg.read_bytes()
    assert b"</svg>" in first
    save(figure, folder / "figure19")
    assert svg.read_bytes() == first
    assert sorted(path.name for path in folder.iterdir()) == ["figure19.png", "figure19.svg"]
