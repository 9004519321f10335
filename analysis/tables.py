"""Figure 19's table for the terminal, and the same as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.figure19 import SERIES, Panel, Point
from analysis.intervals import Estimate
from analysis.paper import Reading, crossings, readings, verdict

MS = 1e3
CPU_WARNING = "CPU, NOT A GPU FIGURE"
MODELLED = "modelled"
COLUMNS = ("swap_out", "swap_in", "swap_in_out", "recompute")


def figure19_table(panel: Panel) -> RenderableType:
    """Table, crossing and readings of one panel; fits 100 columns."""
    warning = [Text(f"*** {CPU_WARNING} ***", style="bold red")] if panel.backend == "cpu" else []
    notes = [Text(line) for line in panel.scaled_lines]
    notes += [Text(line) for line in panel.notes]
    notes += [Text(f"* suspect, {series}: {reason}") for series, reasons in panel.suspect.items() for reason in reasons]
    crossing = Text(f"Crossing of recompute and swap in+out: {verdict(panel)}")
    return Group(*warning, _heading(panel), _times(panel), *notes, crossing, _readings(readings(panel)), *warning)


def _heading(panel: Panel) -> Text:
    what = f"{panel.model}, {panel.dtype}, {panel.seq_len} tokens x {panel.batch}"
    how = f"{panel.method}, {panel.layout}, {panel.placement} ({panel.origin})"
    return Text(f"{panel.name}\n{what}; {how}", style="bold")


def _times(panel: Panel) -> Table:
    measured = "median of the wall clock, below it its 95 % interval"
    caption = measured if panel.origin == "measured" else f"~ {MODELLED}" if _modelled(panel) else None
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    table.add_column("block\nsize", justify="right", no_wrap=True)
    for name in COLUMNS:
        table.add_column(f"{SERIES[name].lower()}\nms", justify="right", overflow="fold")
    table.add_column("recompute /\nswap in+out", justify="right", overflow="fold")
    for point in panel.points:
        cells = [_marked(panel, point, name) for name in COLUMNS]
        table.add_row(str(point.block_size), *cells, _cell(point.ratio, 1, False))
    return table


def _marked(panel: Panel, point: Point, name: str) -> str:
    cell = _cell(getattr(point, name), MS, name in point.suspect)
    return f"~{cell}" if panel.origin_of(point, name) == MODELLED and cell != "-" else cell


def _modelled(panel: Panel) -> bool:
    return any(panel.origin_of(point, name) == MODELLED for point in panel.points for name in COLUMNS)


def _cell(estimate: Estimate | None, unit: float, suspect: bool) -> str:
    if estimate is None:
        return "-"
    interval = estimate.interval
    ends = "" if interval is None else f"\n{digits(interval.low * unit)}-{digits(interval.high * unit)}"
    return digits(estimate.value * unit) + ("*" if suspect else "") + ends


def digits(number: float) -> str:
    """Four significant digits, never an exponent."""
    size = abs(number)
    if size >= 1e4 or not number:
        return f"{number:,.0f}"
    return f"{number:#.4g}".rstrip(".") if size >= 1e-4 else f"{number:.7f}"


def _readings(lines: Sequence[Reading]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("reading", "recompute", "largest recompute /\nswap in+out", "at block\nsize", "limit", "here"):
        table.add_column(name, overflow="fold")
    for line in lines:
        recompute = "as it is" if line.factor == 1 else f"x {line.factor} (authors' plot)"
        answer = ("holds" if line.holds else "does not hold") + ("" if line.clear else "\n(interval spans it)")
        table.add_row(
            line.name, recompute, _cell(line.largest, 1, False), str(line.block_size), f"{line.limit}", answer
        )
    sentences = dict.fromkeys(f"  {line.name}: {line.sentence}, at every block size" for line in lines)
    return Group(Text("The paper's \"never higher than 20% of swapping's latency\":"), *map(Text, sentences), table)


def figure19_values(panel: Panel) -> dict[str, Any]:
    """The panel as plain values: milliseconds, ratios, crossings and readings. Intervals are [low, high] or null."""
    fields = (
        "machine",
        "hardware",
        "backend",
        "model",
        "dtype",
        "seq_len",
        "batch",
        "origin",
        "layout",
        "method",
        "placement",
    )
    return {field: getattr(panel, field) for field in fields} | {
        "gpu_figure": panel.backend != "cpu",
        "scaled": panel.scaled,
        "suspect": {series: list(reasons) for series, reasons in panel.suspect.items()},
        "notes": list(panel.notes),
        "points": [_point_values(panel, point) for point in panel.points],
        "crossings": [asdict(c) for c in crossings([(size, ratio.value) for size, ratio in panel.pairs])],
        "verdict": verdict(panel),
        "readings": [_reading_values(line) for line in readings(panel)],
    }


def _point_values(panel: Panel, point: Point) -> dict[str, Any]:
    times = {f"{name}_ms": _estimate_values(getattr(point, name), MS) for name in COLUMNS}
    ratio = _estimate_values(point.ratio, 1)
    origins = {name: panel.origin_of(point, name) for name in COLUMNS}
    known = {"recompute_to_swap": ratio, "suspect": sorted(point.suspect), "origins": origins}
    return {"block_size": point.block_size, **times, **known}


def _reading_values(line: Reading) -> dict[str, Any]:
    facts = {
        name: getattr(line, name) for name in ("name", "sentence", "factor", "limit", "block_size", "holds", "clear")
    }
    return facts | {"largest_ratio": _estimate_values(line.largest, 1)}


def _estimate_values(estimate: Estimate | None, unit: float) -> dict[str, Any] | None:
    if estimate is None:
        return None
    interval: Sequence[float] | None = estimate.interval
    return {"value": estimate.value * unit, "interval": None if interval is None else [end * unit for end in interval]}
