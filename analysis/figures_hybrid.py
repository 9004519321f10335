"""The split of a hybrid: time over the part that is computed while the rest is swapped in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.drawing import PALETTE, draw_curve, entitle, legend_below, log_axis, new_figure
from analysis.intervals import Estimate
from analysis.recoveries import CURVES, PARTS, Hybrid, Split
from analysis.recovery_rows import together

INCHES = (5.6, 4.2)
MS, PERCENT = 1e3, 100
BEST: dict[str, Any] = {"marker": "*", "ms": 15, "color": "gold", "mec": "black", "mew": 1.2, "ls": ""}
PREDICTED: dict[str, dict[str, Any]] = {
    PARTS: {"color": "black", "lw": 1.2, "ls": (0, (1, 1.6))},
    CURVES: {"color": "0.35", "lw": 1.6, "ls": (0, (4, 1.6, 1, 1.6))},
}


class Part(NamedTuple):
    """One line over the fraction."""

    label: str
    gid: str
    marker: str
    colour: Any
    origin: str
    size: float
    points: list[tuple[float, Estimate, bool]]


def draw_hybrid(found: Sequence[Hybrid]) -> Figure:
    """A panel a model and length: its fastest way of copying, with both parts alone, and the best split.

    Parameters
    ----------
    found : sequence of Hybrid
        At least one.
    """
    panels = together(found, lambda one: (one.subject, one.seq_len))
    figure, axes = new_figure(len(panels), min(2, len(panels)), INCHES)
    handles: list[Any] = []
    for ax, ((subject, tokens), ways) in zip(axes, panels, strict=True):
        fastest = min(ways, key=lambda one: one.best.time.value)
        handles += _draw_panel(ax, fastest)
        among = f" (the fastest of {len(ways)})" if len(ways) > 1 else ""
        lines = (subject.name, f"{subject.what}, {tokens:,} tokens", fastest.way.text + among)
        entitle(ax, lines, 66, subject.backend == "cpu")
    legend_below(figure, sorted(handles, key=_rank))
    return figure


def _rank(one: Any) -> bool:
    """Lines over the fraction first."""
    return "split" in str(one.get_label())


def _draw_panel(ax: Axes, one: Hybrid) -> list[Any]:
    handles: list[Any] = []
    for part in _parts(one.splits):
        x, times, suspect = zip(*part.points, strict=True)
        percent = [PERCENT * fraction for fraction in x]
        about = part._asdict()
        del about["points"]
        handles += draw_curve(ax, percent, times, suspect=suspect, unit=MS, **about)
    ax.plot([PERCENT * one.best.fraction], [one.best.time.value * MS], zorder=7, gid="best", **BEST)
    handles.append(Line2D([], [], label="best split found (measured)", **BEST))
    for guess in one.predicted:
        ax.axvline(PERCENT * guess.fraction.value, zorder=1.5, gid="predicted", **PREDICTED[guess.by])
        handles.append(Line2D([], [], label=f"best split by {guess.by} (modelled)", **PREDICTED[guess.by]))
    ax.set_xlim(-3, 103)
    ax.set_xlabel("Part that is computed (% of the tokens); the rest is swapped in")
    log_axis(ax, "Time (ms)")
    return handles


def _parts(splits: Sequence[Split]) -> Iterator[Part]:
    """What is empty has no time: no computing at 0, no swapping in at 1."""
    fronts = [(split.fraction, Estimate(split.front_alone_s), False) for split in splits if split.front_alone_s]
    rests = [(split.fraction, Estimate(split.rest_alone_s), False) for split in splits if split.rest_alone_s]
    bounds = [(split.fraction, Estimate(split.bound_s), False) for split in splits if split.bound_s]
    both = [(split.fraction, split.time, split.suspect) for split in splits]
    parts = (
        Part("both at once", "both", "o", PALETTE[0], "measured", 6, both),
        Part("computing alone", "front", "s", PALETTE[3], "measured", 6, fronts),
        Part("swapping in alone", "rest", "v", PALETTE[2], "measured", 6, rests),
        Part("bound: the longer of the two", "bound", "D", "0.25", "modelled", 9, bounds),
    )
    return (part for part in parts if part.points)
