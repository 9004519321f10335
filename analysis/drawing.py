"""What the figures share: styles by origin, axes with plain numbers, legends below, the mark of a CPU."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from analysis.intervals import Estimate

ORIGINS = ("measured", "published", "modelled")
ORIGIN_LINES: dict[str, Any] = {"measured": "-", "published": (0, (5, 2)), "modelled": (0, (1, 1.6))}
# A hollow mark is a suspect row, so that the origins differ in how much of the mark is filled otherwise.
ORIGIN_FILLS = {"measured": "full", "published": "full", "modelled": "left"}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
PALETTE = sns.color_palette("colorblind", 10)
SUSPECT_LABEL = "hollow: suspect"
CPU_MARK = "CPU, not a GPU figure"
BAND = Patch(color="0.5", alpha=0.35, lw=0, label="95 % interval of the median")
TITLE_SIZE, LEGEND_SIZE = 9, 9
LETTER_INCHES, HANDLE_INCHES = 0.075, 0.75  # of a legend entry at that size
LINE_INCHES, FREE_LINES = 0.19, 3  # height of a line of the legend, and how many a new figure has room for
NARROW = 8  # a logarithmic axis over less than this gets every digit as a tick
WIDE = 10_000  # over more, powers of ten only


def new_figure(
    panels: int, columns: int, inches: tuple[float, float], extra_height: float = 0.8
) -> tuple[Figure, list[Axes]]:
    """A figure of `panels` axes in rows of `columns`, unused ones switched off, with room for a legend below."""
    lines = math.ceil(panels / columns)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    with sns.axes_style("whitegrid"):
        figure = Figure(figsize=(inches[0] * columns, inches[1] * lines + extra_height), layout=layout)
        FigureCanvasAgg(figure)
        axes: list[Axes] = figure.subplots(lines, columns, squeeze=False).flatten().tolist()
    for ax in axes[panels:]:
        ax.set_axis_off()
    return figure, axes[:panels]


def mark_style(marker: str, colour: Any, origin: str, size: float = 6, suspect: bool = False) -> dict[str, Any]:
    """Keywords of a marker by origin; hollow where suspect."""
    style = {"marker": marker, "ms": size, "mew": 1.2, "color": colour, "mec": colour}
    if suspect:
        return style | {"mfc": "white"}
    return style | {"mfc": colour, "mfcalt": "white", "fillstyle": ORIGIN_FILLS[origin]}


def draw_line(
    ax: Axes,
    x: Sequence[float],
    y: Sequence[float],
    *,
    origin: str,
    marker: str,
    colour: Any,
    suspect: Iterable[bool] = (),
    gid: str = "",
    size: float = 6,
) -> None:
    """A line in the style of its origin with its marks on top, hollow where suspect; what was measured lies above."""
    above = 2.0 if origin == "measured" else 0.0
    flags = list(suspect) or [False] * len(x)
    ax.plot(x, y, ls=ORIGIN_LINES[origin], color=colour, lw=1.5, zorder=3 + above, gid=gid or None)
    for flag in (False, True):
        chosen = [(a, b) for a, b, hollow in zip(x, y, flags, strict=True) if hollow == flag]
        if chosen:
            style = mark_style(marker, colour, origin, size, flag)
            name = f"{gid}-{'suspect' if flag else 'clean'}"
            ax.plot(*zip(*chosen, strict=True), ls="", zorder=4 + above, gid=name, **style)


def draw_curve(
    ax: Axes,
    x: Sequence[float],
    y: Sequence[Estimate],
    *,
    label: str,
    marker: str,
    colour: Any,
    origin: str = "measured",
    suspect: Sequence[bool] = (),
    unit: float = 1.0,
    gid: str = "",
    size: float = 6,
) -> list[Any]:
    """`draw_line` in another unit, with a band where there are intervals; returns its legend entries."""
    values = [one.value * unit for one in y]
    draw_line(ax, x, values, origin=origin, marker=marker, colour=colour, suspect=suspect, gid=gid, size=size)
    handles: list[Any] = [handle(label, marker, colour, origin, size)]
    intervals = [(at, one.interval) for at, one in zip(x, y, strict=True)]
    banded = [(at, ends.low * unit, ends.high * unit) for at, ends in intervals if ends is not None]
    if banded:
        places, low, high = zip(*banded, strict=True)
        ax.fill_between(places, low, high, color=colour, alpha=0.25, lw=0, zorder=2)
        handles.append(BAND)
    return handles + ([suspect_handle()] if any(suspect) else [])


def handle(label: str, marker: str, colour: Any, origin: str, size: float = 6) -> Line2D:
    """A legend entry in the style of `draw_line`, its label followed by the origin."""
    style = mark_style(marker, colour, origin, size)
    return Line2D([], [], ls=ORIGIN_LINES[origin], lw=1.5, label=f"{label} ({origin})", **style)


def looks(names: Iterable[str]) -> dict[str, tuple[str, Any]]:
    """A marker and a colour by name, each pair once as long as they last."""
    different = list(dict.fromkeys(names))
    return {name: (MARKERS[i % len(MARKERS)], PALETTE[i % len(PALETTE)]) for i, name in enumerate(different)}


def suspect_handle() -> Line2D:
    """The legend entry of hollow marks."""
    return Line2D([], [], marker="o", ls="", color="0.3", mfc="white", label=SUSPECT_LABEL)


def legend_below(figure: Figure, handles: Sequence[Any], columns: int | None = None) -> None:
    """One legend for all panels, each label once, what is no series last; a long one makes the figure higher.

    By default as many columns as the longest label leaves room for.
    """
    by_label = {str(one.get_label()): one for one in handles}
    last = [label for label in (str(BAND.get_label()), SUSPECT_LABEL) if label in by_label]
    by_label |= {label: by_label.pop(label) for label in last}
    longest = max(map(len, by_label)) * LETTER_INCHES + HANDLE_INCHES
    width, height = figure.get_size_inches()
    room = max(1, int(width / longest))
    columns = max(1, min(columns or room, len(by_label)))
    lines = math.ceil(len(by_label) / columns)
    figure.set_size_inches(width, height + max(0, lines - FREE_LINES) * LINE_INCHES)
    figure.legend(
        handles=list(by_label.values()),
        loc="outside lower center",
        ncols=columns,
        fontsize=LEGEND_SIZE,
        handlelength=3.4,
    )


def log2_axis(ax: Axes, values: Iterable[float], label: str, axis: str = "x", ticks: int = 9) -> None:
    """A base-2 axis over `values`, labelled 1, 2, 4 ..., every second power (or third ...) if more than `ticks`."""
    known = np.array([value for value in values if value > 0], dtype=float)
    first, last = math.floor(math.log2(known.min())), math.ceil(math.log2(known.max()))
    step = math.ceil((last - first + 1) / ticks)
    which = getattr(ax, f"{axis}axis")
    getattr(ax, f"set_{axis}scale")("log", base=2)
    which.set_major_locator(FixedLocator([2.0**power for power in range(first, last + 1, step)]))
    which.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(value) if "bytes" in label else f"{value:.0f}"))
    which.set_minor_locator(NullLocator())
    getattr(ax, f"set_{axis}lim")(2 ** (first - 0.3), 2 ** (last + 0.3))
    getattr(ax, f"set_{axis}label")(label)


def bytes_text(value: float) -> str:
    """256 B, 4 KiB, 2 MiB ..."""
    for unit, letter in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit:
            return f"{value / unit:g} {letter}"
    return f"{value:g} B"


def log_axis(ax: Axes, label: str, axis: str = "y") -> None:
    """A base-10 axis with plain numbers; call it after drawing."""
    getattr(ax, f"set_{axis}scale")("log")
    low, high = getattr(ax, f"get_{axis}lim")()
    which = getattr(ax, f"{axis}axis")
    subs = tuple(range(1, 10)) if high / low < NARROW else (1, 2, 5) if high / low < WIDE else (1,)
    which.set_major_locator(LogLocator(subs=subs))
    which.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    which.set_minor_locator(NullLocator())
    getattr(ax, f"set_{axis}label")(label)


def title(ax: Axes, lines: Iterable[str], columns: int) -> None:
    """The title, a line each, wrapped at `columns` letters."""
    ax.set_title("\n".join(textwrap.fill(line, columns) for line in lines if line), fontsize=TITLE_SIZE)


def entitle(ax: Axes, lines: Iterable[str], columns: int, cpu: bool) -> None:
    """The title, and where the rows are of a CPU, that they are: behind the first line, and across the panel."""
    first, *rest = lines
    title(ax, (f"{first} - {CPU_MARK}" if cpu else first, *rest), columns)
    if cpu:
        watermark(ax)


def watermark(ax: Axes) -> None:
    """The mark that no CPU figure can be taken for a GPU one without."""
    ax.text(0.5, 0.5, "CPU", transform=ax.transAxes, fontsize=72, color="0.5", alpha=0.25, ha="center", va="center")


def without_cpu(frame: pd.DataFrame, with_cpu: bool) -> pd.DataFrame:
    """The GPU rows where there are any; CPU rows alone, or beside them if asked."""
    gpu = frame[frame["backend"] != "cpu"]
    return frame if with_cpu or gpu.empty else gpu
