"""One sequence preempted again and again, by policy; and the time from "resume" to the next token, by length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from analysis.drawing import draw_curve, entitle, legend_below, log2_axis, log_axis, looks, new_figure
from analysis.intervals import Estimate
from analysis.recoveries import Preemptions, Resumed
from analysis.recovery_rows import Way, together, told_apart

INCHES = (5.6, 4.2)
MS = 1e3
LOG_SPREAD = 30  # times between the largest and the smallest, beyond which a linear axis hides the latter
POLICIES = {
    "recompute": "recompute",
    "swap": "swap out and in",
    "swap_kept": "swap, host copy kept",
}
STEP_ALONE = "decode step alone, of the swaps"


def draw_preemptions(found: Sequence[Preemptions]) -> Figure:
    """Time of all preemptions over their number: a panel a model, length and growth, a line a policy and way.

    Parameters
    ----------
    found : sequence of Preemptions
        At least one.
    """
    panels = together(found, lambda one: (one.subject, one.seq_len, one.growth_tokens))
    figure, axes = new_figure(len(panels), min(2, len(panels)), INCHES)
    names, blocks = told_apart(one.way for one in found if one.way)
    styles = looks(_policy_text(one, names) for one in found)
    handles: list[Any] = []
    for ax, ((subject, tokens, growth), lines) in zip(axes, panels, strict=True):
        for one in lines:
            label = _policy_text(one, names)
            marker, colour = styles[label]
            handles += draw_curve(
                ax,
                [point.preemptions for point in one.points],
                [point.time for point in one.points],
                label=label,
                marker=marker,
                colour=colour,
                suspect=[point.suspect for point in one.points],
                unit=MS,
                gid=one.policy,
            )
        _label(ax, lines)
        what = f"{tokens:,} tokens, {growth:,} more each time"
        entitle(ax, (subject.name, subject.what, what, _swaps(blocks)), 66, subject.backend == "cpu")
    legend_below(figure, handles)
    return figure


def _swaps(blocks: str) -> str:
    return f"swaps: {blocks}" if blocks else ""


def _policy_text(one: Preemptions, names: dict[Way, str]) -> str:
    return POLICIES[one.policy] + (f": {names[one.way]}" if one.way else "")


def _label(ax: Axes, lines: Sequence[Preemptions]) -> None:
    counts = sorted({point.preemptions for one in lines for point in one.points})
    ax.xaxis.set_major_locator(FixedLocator(counts))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(counts[0] - 0.5, counts[-1] + 0.5)
    ax.set_xlabel("Preemptions of one sequence")
    times = [point.time.value for one in lines for point in one.points]
    if max(times) / min(times) > LOG_SPREAD:
        log_axis(ax, "Time of all of them (ms)")
    else:
        ax.set_ylim(bottom=0)
        ax.set_ylabel("Time of all of them (ms)")


def draw_resume(found: Sequence[Resumed]) -> Figure:
    """Swap in and one decode step against recompute, until the next token's logits, over length: a panel a model.

    Parameters
    ----------
    found : sequence of Resumed
        At least one.
    """
    panels = together(found, lambda one: one.subject)
    figure, axes = new_figure(len(panels), min(2, len(panels)), INCHES)
    names, blocks = told_apart(one.way for one in found)
    styles = looks(["recompute", STEP_ALONE, *names.values()])
    handles: list[Any] = []
    for ax, (subject, mine) in zip(axes, panels, strict=True):
        handles += _draw_resumed(ax, mine, names, styles)
        log2_axis(ax, [one.seq_len for one in mine], "Length (tokens)")
        log_axis(ax, "Until the next token's logits (ms)")
        entitle(ax, (subject.name, subject.what, _swaps(blocks)), 66, subject.backend == "cpu")
    legend_below(figure, handles)
    return figure


def _draw_resumed(
    ax: Axes, mine: Sequence[Resumed], names: dict[Way, str], styles: dict[str, tuple[str, Any]]
) -> list[Any]:
    """Recompute first; it was timed once a length, whatever the ways of copying."""
    recomputed = {one.seq_len: (one.recompute, one.suspect) for one in mine if one.recompute}
    handles = _draw(ax, "recompute", recomputed, styles["recompute"], "recompute")
    for way, group in together(mine, lambda one: one.way):
        swapped = {one.seq_len: (one.swap, one.suspect) for one in group}
        handles += _draw(ax, f"swap in + step: {names[way]}", swapped, styles[names[way]], "swap")
    steps = {one.seq_len: (Estimate(one.step_alone_s), False) for one in mine if one.step_alone_s}
    return handles + _draw(ax, STEP_ALONE, steps, styles[STEP_ALONE], "step")


def _draw(
    ax: Axes, label: str, points: dict[int, tuple[Estimate, bool]], style: tuple[str, Any], gid: str
) -> list[Any]:
    if not points:
        return []
    tokens = sorted(points)
    times, suspect = zip(*(points[count] for count in tokens), strict=True)
    marker, colour = style
    about: dict[str, Any] = {"label": label, "marker": marker, "colour": colour, "gid": gid}
    return draw_curve(ax, tokens, times, suspect=suspect, unit=MS, **about)
