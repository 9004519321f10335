"""Figure 19 from published rows alone: origins, values worked out by hand, and a picture that says which is which."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.figure19 import Panel, panels
from analysis.figures import draw_figure19, save
from analysis.load import load
from analysis.published import load_published
from analysis.published_figure19 import CASES, published_panels
from analysis.published_hosts import MORE_SITES, SITES, copy_seconds, hosts
from analysis.published_series import CopySeries
from kernels.shapes import find
from tests.analysis import synthetic
from tests.analysis.pictures import legend_of, overlaps

PER_COPY_S = 3.69009e-6  # median of nine published rows: 1000 copies of 4 KiB on the H100, host to device


@cache
def published() -> pd.DataFrame:
    return load_published()


@cache
def found() -> list[Panel]:
    return published_panels(published())


def one(start: str, model: str, tokens: int) -> Panel:
    (panel,) = [p for p in found() if p.name.startswith(start) and (p.model, p.seq_len) == (model, tokens)]
    return panel


def at(panel: Panel, block_size: int) -> dict[str, tuple[float, str]]:
    """Milliseconds and origin by series."""
    (point,) = [point for point in panel.points if point.block_size == block_size]
    assert point.swap_in is not None
    assert point.swap_out is not None
    assert point.swap_in_out is not None
    times = {"recompute": point.recompute, "swap_in": point.swap_in, "swap_out": point.swap_out}
    times["swap_in_out"] = point.swap_in_out
    return {name: (time.value * 1e3, panel.origin_of(point, name)) for name, time in times.items()}


def test_every_machine_has_every_case() -> None:
    names = ["A100-SXM4, cloud VM", "A100-PCIE, bare host", "H100-SXM5", "H200-SXM"]
    assert [(p.name, p.model, p.seq_len) for p in found()] == [(name, *case) for case in CASES for name in names]
    assert {panel.layout for panel in published_panels(published(), CASES[:1], "cross_layer")} == {"cross_layer"}


def test_no_number_is_measured_and_only_the_h100_has_published_swaps() -> None:
    for panel in found():
        origins = {panel.origin_of(point, series) for point in panel.points for series in ("swap_in", "swap_out")}
        assert panel.origin_of(panel.points[0], "recompute") == "published"
        assert "measured" not in origins
        assert ("published" in origins) == panel.name.startswith("H100"), panel.name


def test_the_papers_case_on_both_a100_hosts() -> None:
    """DistServe's 44.7 ms; 200 MiB and 80 copies a direction at block 256, at the two published link rates."""
    nbytes, copies = 256 * 819200, 80
    for start, rates in (("A100-SXM4", (12.3e9, 13.2e9)), ("A100-PCIE", (25.8e9, 25.85e9))):
        values = at(one(start, "opt-13b", 256), 256)
        assert values["recompute"][0] == pytest.approx(44.7, abs=0.05)
        expected = [(copies * PER_COPY_S + nbytes / rate) * 1e3 for rate in rates]
        assert values["swap_in"] == (pytest.approx(expected[0]), "modelled")
        assert values["swap_out"] == (pytest.approx(expected[1]), "modelled")
        assert values["swap_in_out"][0] == pytest.approx(sum(expected))


def test_the_h100_reads_the_published_curve() -> None:
    """Llama-3-8B, 4096 tokens, block 16: 16,384 copies of 32 KiB at 7.46 and 8.18 GB/s: 72.0 + 65.6 = 137.6 ms.

    `papers-and-numbers.md` has 121 ms from a fit (3 us + bytes / 52 GB/s) that is below the curve it was fitted to.
    """
    values = at(one("H100", "llama-3-8b", 4096), 16)
    nbytes = 4096 * 131072
    assert values["swap_in"] == (pytest.approx(nbytes / 7.46e9 * 1e3), "published")
    assert values["swap_out"] == (pytest.approx(nbytes / 8.18e9 * 1e3), "published")
    assert values["swap_in_out"][0] == pytest.approx(137.6, abs=0.05)
    assert values["recompute"] == (pytest.approx(79.7, abs=0.05), "published")
    ratio = next(ratio for size, ratio in one("H100", "llama-3-8b", 4096).pairs if size == 16)
    assert ratio.value == pytest.approx(79.7 / 137.6, abs=1e-3)


def test_copies_beyond_the_published_sizes_are_modelled() -> None:
    """Block 1 is 2 KiB of one layer's K: below the 4 KiB where the curve begins, so as slow as 4 KiB."""
    values = at(one("H100", "llama-3-8b", 256), 1)
    assert values["swap_in"] == (pytest.approx(256 * 64 * 4096 / 1.11e9 * 1e3), "modelled")
    assert values["swap_in_out"][1] == "modelled"
    assert at(one("H100", "llama-3-8b", 256), 2)["swap_in_out"][1] == "published"


def test_a_curve_is_read_on_logarithmic_scales() -> None:
    numbers = (np.array([4096.0, 16384.0]), np.array([1000.0, 1000.0]), np.array([1e9, 4e9]), np.zeros(2))
    curve = CopySeries("", "", "", "", *numbers)
    assert copy_seconds(curve, 8192) == (pytest.approx(8192 / 2e9), True)
    assert copy_seconds(curve, 2048) == (pytest.approx(4096 / 1e9), False)
    assert copy_seconds(curve, 65536) == (pytest.approx(65536 / 4e9), False)


def test_hosts_without_rows_are_modelled() -> None:
    """GH200 has link rates and no prefill, B200 a prefill and no link rate."""
    gh200, b200 = hosts(published(), MORE_SITES)
    shape = find("llama-3-8b")
    assert gh200.rates == {"swap_in": 378.5e9, "swap_out": 297.5e9}
    assert gh200.recompute("llama-3-8b", shape, 4096).origin == "modelled"
    assert b200.recompute("llama-3-8b", shape, 4096).origin == "published"
    assert b200.rates == {}
    assert b200.swap(shape, 4096, 16, "cross_layer", "swap_in").origin == "modelled"
    assert len(hosts(published())) == len(SITES)


@cache
def picture() -> tuple[Panel, ...]:
    return tuple(panel for panel in found() if panel.model == "opt-13b")


def test_the_legend_says_where_numbers_come_from() -> None:
    figure = draw_figure19(picture(), log_y=True)
    entries = legend_of(figure)
    assert entries[0] == "Recompute (published)"
    assert {"Swap in+out (published)", "Swap in+out (modelled)"} <= set(entries)
    assert "Recompute (modelled)" not in entries
    assert not any("measured" in entry for entry in entries)
    for ax, panel in zip(figure.axes, picture(), strict=True):
        assert panel.name in ax.get_title()
        assert "recompute published:" in ax.get_title()
    assert overlaps(figure) == []


def test_one_line_style_an_origin() -> None:
    h100 = draw_figure19([one("H100", "llama-3-8b", 256)], log_y=True).axes[0]
    runs = [line for line in h100.lines if line.get_gid() == "swap_in_out"]
    assert [next(iter(line.get_xdata())) for line in runs] == [1, 2]  # type: ignore[arg-type]
    assert len({str(line._dash_pattern) for line in runs}) == 2  # type: ignore[attr-defined]
    marks = [line for line in h100.lines if line.get_gid() == "swap_in_out-clean"]
    assert sorted((line.get_fillstyle(), len(line.get_xdata())) for line in marks) == [("full", 8), ("left", 1)]  # type: ignore[arg-type]


def test_measured_panels_beside_published_ones_are_solid(tmp_path: Path) -> None:
    measured, _ = panels(load(synthetic.write(tmp_path, synthetic.figure19_document(rounds=2))))
    figure = draw_figure19([*measured, one("H200", "opt-13b", 256)])
    solid = [line for line in figure.axes[0].lines if line.get_gid() in ("recompute", "swap_in", "swap_in_out")]
    assert {str(line.get_linestyle()) for line in solid} == {"-"}
    assert all(line.get_linestyle() != "-" for line in figure.axes[1].lines if line.get_gid() == "recompute")
    assert {"Recompute (measured)", "Recompute (published)", "Swap in (modelled)"} <= set(legend_of(figure))


def test_the_whole_grid_is_four_across_and_free_of_overlaps() -> None:
    figure = draw_figure19(found(), log_y=True)
    assert overlaps(figure) == []
    first_row = [ax for ax in figure.axes if math.isclose(ax.get_position().y1, figure.axes[0].get_position().y1)]
    assert len(first_row) == 4


def test_the_first_picture_is_small(tmp_path: Path) -> None:
    png, svg = save(draw_figure19(picture(), log_y=True), tmp_path / "figure19-published")
    assert png.stat().st_size < 300_000
    assert b"</svg>" in svg.read_bytes()
