"""Hardware generations side by side: recompute against swap in+out over length, a panel a machine."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.contract import NothingToDraw
from analysis.drawing import (
    PALETTE,
    bytes_text,
    draw_curve,
    entitle,
    legend_below,
    log2_axis,
    log_axis,
    new_figure,
    without_cpu,
)
from analysis.intervals import Estimate
from analysis.load import COLUMNS
from analysis.measured import seconds
from analysis.published_hosts import DIRECTIONS, MODELLED, MORE_SITES, PUBLISHED, SITES, Host, hosts
from analysis.scaling import to_full_model
from kernels.shapes import SHAPES, Layout, ModelShape, find

MODEL = "llama-3-8b"
BLOCK_SIZE = 16  # tokens: vLLM's default
METHOD = "memcpy_loop"
LAYOUTS: tuple[Layout, ...] = ("layer_split", "cross_layer")
TOKENS = (256, 512, 1024, 2048, 4096, 8192)
INCHES = (4.9, 4.0)
MS = 1e3
LOOKS = {"recompute": ("s", PALETTE[0]), "layer_split": ("v", PALETTE[3]), "cross_layer": ("o", PALETTE[2])}


class Point(NamedTuple):
    """One length of one series."""

    tokens: int
    time: Estimate
    origin: str
    suspect: bool = False


Series = dict[str, list[Point]]  # "recompute" or a layout


def draw_generations(
    frame: pd.DataFrame | None = None,
    published: pd.DataFrame | None = None,
    *,
    model: str | None = None,
    block_size: int = BLOCK_SIZE,
    with_cpu: bool = False,
) -> Figure:
    """Recompute, and swap in+out with small copies (layer_split) and large ones (cross_layer), over length, log-log.

    Parameters
    ----------
    frame : pandas.DataFrame, optional
        Of `analysis.load.load`: a panel a machine, `memcpy_loop` on scattered blocks; solid.
    published : pandas.DataFrame, optional
        Of `load_published`: a panel for each machine of `published_hosts`; published dashed, modelled dotted. None
        beside a CPU unless asked.
    model : str, optional
        By default `MODEL`, or what was timed most where `MODEL` was not timed at all.
    block_size : int
        What is compared.
    with_cpu : bool
        Draw CPU panels beside GPU ones.

    Raises
    ------
    NothingToDraw
        If there is no published row, and no machine measured a swap or recompute of the model.
    """
    model = model or default_model(frame)
    shape = find(model)
    rows = None if frame is None else without_cpu(frame, with_cpu)
    cpu_only = rows is not None and not rows.empty and bool((rows["backend"] == "cpu").all()) and not with_cpu
    panels = [] if rows is None else _measured_panels(rows, model, block_size)
    if published is not None and not cpu_only:
        panels += [_host_panel(host, shape, block_size) for host in hosts(published, SITES + MORE_SITES)]
    if not panels:
        raise NothingToDraw(f"no machine with swaps ({METHOD}, scattered, block {block_size}) or recompute of {model}")
    columns = min(3, len(panels)) if len(panels) != 4 else 2
    figure, axes = new_figure(len(panels), columns, INCHES)
    handles: list[Any] = []
    for ax, (lines, cpu, dtype, series) in zip(axes, panels, strict=True):
        handles += _draw_panel(ax, series, _labels(shape, block_size, dtype))
        entitle(ax, (*lines, f"{model}, block {block_size}"), 56, cpu)
    legend_below(figure, sorted(handles, key=_rank))
    return figure


def _rank(one: Any) -> int:
    """Legend order: by origin, then what is no line."""
    label = str(one.get_label())
    return next((i for i, origin in enumerate(("measured", PUBLISHED, MODELLED)) if f"({origin})" in label), 3)


PanelParts = tuple[tuple[str, ...], bool, str, Series]  # title, whether a CPU, dtype, what is drawn


def _host_panel(host: Host, shape: ModelShape, block_size: int) -> PanelParts:
    series: Series = {"recompute": []}
    for tokens in TOKENS:
        cost = host.recompute(shape.name, shape, tokens)
        series["recompute"].append(Point(tokens, Estimate(cost.seconds), cost.origin))
        for layout in LAYOUTS:
            ways = [host.swap(shape, tokens, block_size, layout, way) for way in DIRECTIONS]
            origin = MODELLED if MODELLED in {way.origin for way in ways} else PUBLISHED
            time = Estimate(sum(way.seconds for way in ways))
            series.setdefault(layout, []).append(Point(tokens, time, origin))
    return (host.site.title, host.link_text), False, "float16", series


def default_model(frame: pd.DataFrame | None) -> str:
    """`MODEL`, unless `frame` holds rows of other models only: then the one with the most rows."""
    timed = pd.Series(dtype=object) if frame is None else frame["model"].dropna()
    known = timed[timed.isin(list(SHAPES))]
    return MODEL if known.empty or MODEL in set(known) else str(known.mode().iloc[0])


def _measured_panels(frame: pd.DataFrame, model: str, block_size: int) -> list[PanelParts]:
    swaps = (frame["recovery"] == "swap") & frame["verified"].astype(bool)
    rows, _ = to_full_model(frame[(frame["model"] == model) & (swaps | (frame["recovery"] == "recompute"))])
    rows = rows[rows["batch"] == 1]
    extra = [name for name in rows.columns if name not in COLUMNS and name != "scaled"]
    rows = rows[rows[extra].isna().all(axis=1)]
    found: list[PanelParts] = []
    for (machine, dtype), group in rows.groupby(["machine", "dtype"]):
        series = measured_series(group, block_size)
        if len(series) < 2:
            continue
        cpu = bool((group["backend"] == "cpu").all())
        lines = (str(machine), f"{dtype}, measured", _layers(group[group["scaled"]]))
        found.append((lines, cpu, str(dtype), series))
    return found


def _layers(scaled: pd.DataFrame) -> str:
    """What was scaled to the whole model; empty if nothing was."""
    if scaled.empty:
        return ""
    what = " and ".join(sorted(scaled["recovery"].unique()))
    return f"{what}: {scaled['layers_timed'].min()} of {scaled['layers_model'].max()} layers timed, scaled to all"


def measured_series(rows: pd.DataFrame, block_size: int) -> Series:
    """Recompute and swap in+out of one machine, model and dtype; empty series are left out."""
    series: Series = {}
    for tokens, alike in rows[rows["recovery"] == "recompute"].groupby("seq_len"):
        point = Point(int(str(tokens)), seconds(alike), "measured", bool(alike["suspect"].map(bool).any()))
        series.setdefault("recompute", []).append(point)
    chosen = (rows["method"] == METHOD) & (rows["placement"] == "scattered") & (rows["block_size"] == block_size)
    for (layout, length), cases in rows[chosen.fillna(False)].groupby(["layout", "seq_len"]):
        ways = [cases[cases["direction"] == way] for way in DIRECTIONS]
        if layout in LAYOUTS and all(len(way) for way in ways):
            time = seconds(ways[0]) + seconds(ways[1])
            suspect = bool(cases["suspect"].map(bool).any())
            series.setdefault(str(layout), []).append(Point(int(str(length)), time, "measured", suspect))
    return series


def _draw_panel(ax: Axes, series: Series, labels: dict[str, str]) -> list[Any]:
    handles: list[Any] = []
    for name, points in series.items():
        marker, colour = LOOKS[name]
        for origin in dict.fromkeys(point.origin for point in points):
            run = [point for point in points if point.origin == origin]
            handles += draw_curve(
                ax,
                [point.tokens for point in run],
                [point.time for point in run],
                label=labels[name],
                marker=marker,
                colour=colour,
                origin=origin,
                suspect=[point.suspect for point in run],
                unit=MS,
                gid=name,
            )
    log2_axis(ax, [point.tokens for points in series.values() for point in points], "Length (tokens)")
    log_axis(ax, "Time (ms)")
    return handles


def _labels(shape: ModelShape, block_size: int, dtype: str) -> dict[str, str]:
    """Legend texts by series, with the bytes of one copy."""
    sizes = {layout: bytes_text(shape.fragment_bytes(layout, block_size, dtype)) for layout in LAYOUTS}
    swaps = {str(layout): f"Swap in+out, {layout}, {size} copies" for layout, size in sizes.items()}
    return {"recompute": "Recompute"} | swaps
