"""Drawing: a marker and a line style a series (black and white), bands for intervals, hollow marks for suspect."""

from __future__ import annotations

import math
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from analysis.drawing import ORIGIN_FILLS, ORIGIN_LINES, ORIGINS
from analysis.figure19 import SERIES, Panel, Point
from analysis.intervals import Estimate

STYLE = {  # marker, its size, line; sizes differ so that equal swap in and swap out stay two marks
    "recompute": ("s", 5.5, "-"),
    "swap_in": ("v", 8.5, ":"),
    "swap_out": ("^", 4.5, "-."),
    "swap_in_out": ("o", 6.0, "--"),
}
COLOURS = dict(zip(SERIES, sns.color_palette("colorblind", len(SERIES)), strict=True))
PANEL_INCHES = (5.6, 4.2)
TITLE_COLUMNS = 58
MS = 1e3
DPI = 160
LOG_SPREAD = 30


def draw_figure19(panels: Sequence[Panel], log_y: bool | None = None, columns: int | None = None) -> Figure:
    """Figure 19 (a): time over block size, a panel each, one legend.

    A line style is a series where all was measured. Where panels hold published or modelled numbers, a marker is a
    series and a line style an origin: measured solid, published dashed, modelled dotted with half-filled marks.

    Parameters
    ----------
    panels : sequence of Panel
        From `analysis.figure19.panels` or `analysis.published_figure19.published_panels`.
    log_y : bool, optional
        Logarithmic time. By default linear, as in the paper, unless a panel's slowest series is more than `LOG_SPREAD`
        times its fastest: the fast ones would lie on the axis.
    columns : int, optional
        Panels side by side; by default 1 to 4 by their number.
    """
    by_origin = _origins(panels) != {"measured"}
    columns = columns or _columns(len(panels))
    lines = math.ceil(len(panels) / columns)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    with sns.axes_style("whitegrid"), mpl.rc_context({"svg.hashsalt": "figure19"}):
        figure = Figure(figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * lines + 0.6), layout=layout)
        FigureCanvasAgg(figure)
        axes = figure.subplots(lines, columns, squeeze=False).flatten().tolist()
        for ax, panel in zip(axes, panels, strict=False):
            _draw_panel(ax, panel, _spread(panel) > LOG_SPREAD if log_y is None else log_y, by_origin)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        figure.legend(
            handles=_legend(panels, by_origin),
            loc="outside lower center",
            ncols=(2, 3, 6, 8)[min(columns, 4) - 1],
            fontsize=9,
        )
    return figure


def _columns(count: int) -> int:
    """Published panels come in fours, a machine each (`published_hosts.SITES`)."""
    if count > 8 and count % 4 == 0:
        return 4
    return 1 if count == 1 else 2 if count <= 4 else 3


def _draw_panel(ax: Axes, panel: Panel, log_y: bool, by_origin: bool) -> None:
    for series in SERIES:
        _draw_series(ax, panel, series, by_origin)
    _label_axes(ax, panel, log_y)
    ax.set_title(_title(panel), fontsize=9)
    if panel.backend == "cpu":
        ax.text(0.5, 0.5, "CPU", transform=ax.transAxes, fontsize=96, color="0.5", alpha=0.25, ha="center", va="center")


def _draw_series(ax: Axes, panel: Panel, series: str, by_origin: bool) -> None:
    points = [(p.block_size, p, e) for p in panel.points if isinstance(e := getattr(p, series), Estimate)]
    marker, size, line = STYLE[series]
    colour = COLOURS[series]
    for origin, run in _runs(panel, series, points):
        style = ORIGIN_LINES[origin] if by_origin else line
        ax.plot(
            [x for x, _, _ in run],
            [e.value * MS for _, _, e in run],
            ls=style,
            color=colour,
            lw=1.6,
            zorder=3,
            gid=series,
        )
    for suspect in (False, True):
        for origin in ORIGINS:
            chosen = [
                (x, e.value * MS)
                for x, p, e in points
                if (series in p.suspect) == suspect and panel.origin_of(p, series) == origin
            ]
            if not chosen and (origin != "measured" or by_origin):
                continue
            ax.plot(
                [x for x, _ in chosen],
                [ms for _, ms in chosen],
                marker,
                color=colour,
                mfc="white" if suspect else colour,
                mfcalt="white",
                fillstyle=ORIGIN_FILLS[origin],
                ms=size,
                mew=1.4,
                zorder=4,
                gid=f"{series}-suspect" if suspect else f"{series}-clean",
            )
    banded = [(x, *interval) for x, _, e in points if (interval := e.interval) is not None]
    low, high = [low * MS for _, low, _ in banded], [high * MS for _, _, high in banded]
    ax.fill_between([x for x, _, _ in banded], low, high, color=colour, alpha=0.25, lw=0, zorder=2)


def _runs(
    panel: Panel, series: str, points: list[tuple[int, Point, Estimate]]
) -> list[tuple[str, list[tuple[int, Point, Estimate]]]]:
    """Pieces of one origin each; what joins two origins belongs to the one that knows less."""
    runs: list[tuple[str, list[tuple[int, Point, Estimate]]]] = []
    for left, right in zip(points, points[1:] or points, strict=False):
        origin = max((panel.origin_of(p, series) for _, p, _ in (left, right)), key=ORIGINS.index)
        if runs and runs[-1][0] == origin:
            runs[-1][1].append(right)
        else:
            runs.append((origin, [left, right]))
    return runs


def _origins(panels: Sequence[Panel]) -> set[str]:
    return {panel.origin_of(point, series) for panel in panels for point in panel.points for series in SERIES}


def _label_axes(ax: Axes, panel: Panel, log_y: bool) -> None:
    sizes = [point.block_size for point in panel.points]
    first, last = math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes)))
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator([2**power for power in range(first, last + 1)]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:.0f}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(2 ** (first - 0.3), 2 ** (last + 0.3))
    ax.set_xlabel("Block size (tokens)")
    ax.set_ylabel("Time (ms, log scale)" if log_y else "Time (ms)")
    if log_y:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g}"))
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        ax.set_ylim(bottom=0)


def _spread(panel: Panel) -> float:
    """How many times the largest time of a panel is its smallest."""
    found = (getattr(point, series) for point in panel.points for series in SERIES)
    times = [estimate.value for estimate in found if isinstance(estimate, Estimate)]
    return max(times) / min(times)


def _title(panel: Panel) -> str:
    tokens = f"{panel.seq_len} tokens" + (f" x {panel.batch} sequences" if panel.batch > 1 else "")
    lines = [
        f"{panel.name} - CPU, not a GPU figure" if panel.backend == "cpu" else panel.name,
        f"{panel.model}, {panel.dtype}, {tokens}",
        f"{panel.method}, {panel.layout}, {panel.placement}",
        *panel.scaled_lines,
        *panel.notes,
    ]
    return "\n".join(textwrap.fill(line, TITLE_COLUMNS) for line in lines)


def _legend(panels: Sequence[Panel], by_origin: bool) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        _handle(name, origin, by_origin)
        for origin in sorted(_origins(panels), key=ORIGINS.index)
        for name in STYLE
        if any(panel.origin_of(point, name) == origin for panel in panels for point in panel.points)
    ]
    points = [point for panel in panels for point in panel.points]
    if any(e is not None and e.draws is not None for p in points for e in (p.recompute, p.swap_in, p.swap_out)):
        handles.append(Patch(color="0.5", alpha=0.35, label="95 % interval of the median"))
    if any(point.suspect for point in points):
        handles.append(Line2D([], [], marker="o", ls="", color="0.3", mfc="white", label="hollow: suspect"))
    return handles


def _handle(series: str, origin: str, by_origin: bool) -> Line2D:
    marker, size, line = STYLE[series]
    colour, label = COLOURS[series], f"{SERIES[series]} ({origin})"
    fill: Any = ORIGIN_FILLS[origin]
    style = ORIGIN_LINES[origin] if by_origin else line
    return Line2D([], [], marker=marker, ms=size, ls=style, color=colour, fillstyle=fill, mfcalt="white", label=label)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `<stem>.png` and `<stem>.svg`, whole or not at all. Returns their paths; OSError if the folder refuses."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    targets = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    with tempfile.TemporaryDirectory(dir=stem.parent, prefix=".figure-") as folder:
        drafts = [Path(folder) / target.name for target in targets]
        for draft in drafts:
            with mpl.rc_context({"svg.hashsalt": stem.name}):
                figure.savefig(draft, dpi=DPI, metadata={"Date": None} if draft.suffix == ".svg" else None)
        for draft, target in zip(drafts, targets, strict=True):
            draft.replace(target)
    return targets
