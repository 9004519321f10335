"""How fast copies run by the bytes of one copy: a panel a machine and direction, a line a copy method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import published as pub
from analysis.contract import NothingToDraw
from analysis.drawing import (
    MARKERS,
    PALETTE,
    draw_line,
    entitle,
    handle,
    legend_below,
    log2_axis,
    log_axis,
    looks,
    new_figure,
    suspect_handle,
    without_cpu,
)
from analysis.intervals import median
from analysis.published_series import CopySeries

GB = 1e9
KIB = 1024
STEP = (24 * KIB, 32 * KIB)  # where cuMemcpyBatchAsync changes its way of copying (vllm PR #42212)
CEILING = "contiguous"
INCHES = (5.6, 4.2)
DIRECTIONS = {"swap_in": "host to device", "swap_out": "device to host", "both": "both directions, summed"}
BAND = Patch(color="0.5", alpha=0.35, lw=0, label="95 % intervals over all cases of one size")
STEP_MARK = Patch(facecolor="0.8", edgecolor="0.4", hatch="\\\\", lw=0, label="24 to 32 KiB: step of the batch call")
CEILING_MARK = Line2D([], [], color="black", lw=1.8, ls=(0, (8, 2, 1, 2)), label="ceiling: one large copy (measured)")
BEHIND_GREY = "0.45"
FEWEST_SIZES = 3


class Rate(NamedTuple):
    """Bytes of one copy; GB/s, and the ends of the intervals, over all cases of that size; whether one is suspect."""

    fragment_bytes: int
    gbps: float
    low: float
    high: float
    suspect: bool


def draw_rates(
    frame: pd.DataFrame | None = None, published: pd.DataFrame | None = None, *, with_cpu: bool = False
) -> Figure:
    """GB/s over the bytes of one copy, log-log, with the ceiling and the 24 to 32 KiB step.

    Parameters
    ----------
    frame : pandas.DataFrame, optional
        Of `analysis.load.load`: verified swaps and copies; a swap's bytes of one copy are `fragment_bytes`.
    published : pandas.DataFrame, optional
        Of `load_published`: its curves of three sizes or more stand behind, dashed and grey. Never behind a CPU.
    with_cpu : bool
        Draw CPU panels beside GPU ones.

    Raises
    ------
    NothingToDraw
        If neither has a rate by size.
    """
    panels = [] if frame is None else _measured_panels(without_cpu(frame, with_cpu))
    curves = [] if published is None else published_curves(published)
    if not panels and curves:
        hardware = ", ".join(sorted({curve.hardware for curve in curves}))
        panels = [(f"{hardware} (published)", "", way, {}) for way in ("swap_in", "swap_out")]
    if not panels:
        raise NothingToDraw("no copy or swap rows with verified bytes, and no published rates")
    names = dict.fromkeys(map(_curve_name, curves))
    behind_marks = {name: (MARKERS[-1 - i], PALETTE[i]) for i, name in enumerate(names)}
    figure, axes = new_figure(len(panels), min(2, len(panels)), INCHES)
    marks = looks(_methods(panels))
    handles: list[Any] = [handle(name, *style, "measured") for name, style in marks.items()]
    for ax, (hardware, backend, direction, methods) in zip(axes, panels, strict=True):
        behind = [] if backend == "cpu" else [curve for curve in curves if curve.direction == direction]
        _draw_panel(ax, methods, behind, marks | behind_marks, handles)
        entitle(ax, (hardware, DIRECTIONS[direction]), 64, backend == "cpu")
    measured = any(methods for _, _, _, methods in panels)
    legend_below(figure, [*handles, STEP_MARK, *([BAND] if measured else [])])
    return figure


Panel = tuple[str, str, str, dict[str, list[Rate]]]


def _measured_panels(frame: pd.DataFrame) -> list[Panel]:
    rows = frame[frame["recovery"].isin(["swap", "copy"]) & frame["verified"].astype(bool)]
    rows = rows[rows["fragment_bytes"].notna() & rows["bytes"].notna() & rows["direction"].isin(list(DIRECTIONS))]
    found: list[Panel] = []
    for (machine, direction), group in rows.groupby(["machine", "direction"]):
        methods = {str(name): measured_rates(part) for name, part in group.groupby("method")}
        first = group.iloc[0]
        name = machine if machine == first["hardware"] else f"{machine}: {first['hardware']}"
        found.append((str(name), str(first["backend"]), str(direction), methods))
    return found


def measured_rates(rows: pd.DataFrame) -> list[Rate]:
    """One method in one direction: the median rate over its cases (counts, layouts, lengths) of each size."""
    found = []
    for size, cases in rows.groupby("fragment_bytes"):
        rates, ends = [], []
        for _, sessions in cases.groupby("case_id"):
            nbytes = float(sessions["bytes"].iloc[0])
            seconds = median(list(sessions["wall_s"]))
            rates.append(nbytes / seconds.value / GB)
            ends += [nbytes / end / GB for end in seconds.interval or (seconds.value, seconds.value)]
        suspect = bool(cases["suspect"].map(bool).any())
        found.append(Rate(int(str(size)), float(pd.Series(rates).median()), min(ends), max(ends), suspect))
    return found


def _methods(panels: Sequence[Panel]) -> list[str]:
    return sorted({name for _, _, _, methods in panels for name in methods} - {CEILING})


def _draw_panel(
    ax: Axes,
    methods: dict[str, list[Rate]],
    behind: Sequence[CopySeries],
    marks: dict[str, tuple[str, Any]],
    handles: list[Any],
) -> None:
    sizes = [rate.fragment_bytes for name, rates in methods.items() if name != CEILING for rate in rates]
    ax.axvspan(*STEP, facecolor="0.85", edgecolor="0.5", hatch="\\\\", lw=0, alpha=0.6, zorder=0)
    for curve in behind:
        marker, own = marks[_curve_name(curve)]
        colour = BEHIND_GREY if methods else own
        x, y = list(curve.fragment_bytes), list(curve.bytes_s / GB)
        draw_line(ax, x, y, origin="published", marker=marker, colour=colour, size=5, gid="published")
        handles.append(handle(_curve_name(curve), marker, colour, "published", 5))
        sizes += [int(size) for size in x]
    for name, rates in methods.items():
        if name == CEILING:
            continue
        marker, colour = marks[name]
        x = [rate.fragment_bytes for rate in rates]
        hollow = [rate.suspect for rate in rates]
        draw_line(
            ax, x, [r.gbps for r in rates], origin="measured", marker=marker, colour=colour, suspect=hollow, gid=name
        )
        ax.fill_between(x, [r.low for r in rates], [r.high for r in rates], color=colour, alpha=0.22, lw=0, zorder=2)
        if any(hollow):
            handles.append(suspect_handle())
    if methods.get(CEILING):
        ceiling = max(rate.gbps for rate in methods[CEILING])
        ax.axhline(ceiling, color="black", lw=1.8, ls=(0, (8, 2, 1, 2)), zorder=2.5, gid="ceiling")
        handles.append(CEILING_MARK)
        sizes = sizes or [rate.fragment_bytes for rate in methods[CEILING]]
    log2_axis(ax, [*sizes, *STEP], "Size of one copy (bytes)", ticks=8)
    log_axis(ax, "Rate (GB/s)")


def published_curves(published: pd.DataFrame) -> list[CopySeries]:
    """Published rates of many small copies, a curve a method and number of copies, three sizes or more."""
    found = []
    for series in pub.copy_series(published):
        if series.direction in DIRECTIONS and "contiguous" not in series.method:
            found += _by_count(series)
    return found


def _by_count(series: CopySeries) -> list[CopySeries]:
    found = []
    counts = sorted(set(series.descriptors))
    for count in counts:
        chosen = series.descriptors == count
        if chosen.sum() >= FEWEST_SIZES:
            numbers = (series.fragment_bytes, series.descriptors, series.bytes_s, series.reading_error)
            times = f" x {count:,.0f}" if len(counts) > 1 else ""
            about = (series.hardware, series.method + times, series.direction, series.source)
            found.append(CopySeries(*about, *(values[chosen] for values in numbers)))
    return found


def _curve_name(curve: CopySeries) -> str:
    """Hardware, method and source, short enough for a legend."""
    method = curve.method.replace(" per block (DMA)", " loop").replace(", one call", "")
    source = curve.source.split(" 20")[0].replace("vllm-project/", "")
    return f"{curve.hardware.split('-')[0]} {method}, {source}"
