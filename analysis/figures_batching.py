"""What one more sequence adds to a step that runs anyway, beside its time by itself, and how many tokens ride free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETDOWN, CARETUP
from matplotlib.ticker import FuncFormatter, NullLocator

from analysis.drawing import draw_curve, entitle, legend_below, log2_axis, log_axis, looks, new_figure
from analysis.recoveries import FREE, Batching, Company
from analysis.recovery_rows import Way, together, told_apart

INCHES = (5.6, 4.2)
MS = 1e3
ALONE: dict[str, Any] = {"label": "by itself, without company", "marker": "X", "colour": "black", "gid": "alone"}
NAMES = {"recompute": "recompute in the same pass", "swap": "swap in beside it"}
CARETS: dict[str, Any] = {"at least": CARETUP, "at most": CARETDOWN}
CARET = Line2D(
    [], [], ls="", marker=CARETS["at least"], color="black", label="caret: at least, or at most; no more was timed"
)


def draw_batching(found: Sequence[Batching]) -> Figure:
    """Time added over the tokens that come back, and tokens that ride free over the sequences of a decode step.

    A panel a way of coming back and kind of company, with a line a company; then one of free tokens for each model and
    machine. Times added may be negative, since a difference is measured: their axis is linear around zero.

    Parameters
    ----------
    found : sequence of Batching
        At least one.
    """
    panels = together(found, lambda one: (one.subject, one.policy, one.way, one.company.kind))
    riding = together([one for one in found if one.free], lambda one: one.subject)
    figure, axes = new_figure(len(panels) + len(riding), min(2, len(panels) + len(riding)), INCHES)
    order = sorted((one.company for one in found), key=lambda company: (company.kind, company.size))
    kinds = together(order, lambda company: company.kind)
    styles = {kind: looks(map(company_text, companies)) for kind, companies in kinds}
    handles: list[Any] = []
    for ax, ((subject, policy, way, kind), lines) in zip(axes, panels, strict=False):
        handles += _draw_added(ax, lines, styles[kind])
        what = f"{NAMES[policy]}, company: {kind}"
        entitle(ax, (subject.name, subject.what, what, way.text if way else ""), 66, subject.backend == "cpu")
    names = _free_names(found)
    for ax, (subject, lines) in zip(axes[len(panels) :], riding, strict=True):
        handles += _draw_free(ax, lines, names)
        what = f"tokens that add no more than {FREE:.0%} to the step"
        entitle(ax, (subject.name, subject.what, what), 66, subject.backend == "cpu")
    legend_below(figure, handles)
    return figure


def company_text(company: Company) -> str:
    """Short enough for a legend."""
    if company.kind == "prefill":
        return f"prefill of {company.size:,} tokens"
    return f"decode step of {company.size:,} at {company.context:,} tokens"


def _draw_added(ax: Axes, lines: Sequence[Batching], styles: dict[str, tuple[str, Any]]) -> list[Any]:
    handles: list[Any] = []
    singly = {point.tokens: point.alone for one in lines for point in one.joined if point.alone}
    if singly:
        tokens = sorted(singly)
        handles += draw_curve(ax, tokens, [singly[count] for count in tokens], unit=MS, **ALONE)
    for one in sorted(lines, key=lambda line: line.company.size):
        marker, colour = styles[company_text(one.company)]
        handles += draw_curve(
            ax,
            [point.tokens for point in one.joined],
            [point.added for point in one.joined],
            label=company_text(one.company),
            marker=marker,
            colour=colour,
            suspect=[point.suspect for point in one.joined],
            unit=MS,
            gid="added",
        )
    log2_axis(ax, [point.tokens for one in lines for point in one.joined], "Tokens that come back")
    added = [point.added.value * MS for one in lines for point in one.joined]
    _time_axis(
        ax,
        min(point.without.value for one in lines for point in one.joined) * MS,
        min(0.0, *added),
        max(*added, *(time.value * MS for time in singly.values())),
    )
    return handles


def _time_axis(ax: Axes, step: float, low: float, high: float) -> None:
    """From below `low` to above `high`; linear up to a power of ten below what counts as free of `step`; all in ms."""
    linear = 10.0 ** math.floor(math.log10(FREE * step))
    ax.set_yscale("symlog", linthresh=linear, linscale=0.7)
    ax.set_ylim(1.8 * low - 0.2 * linear, 1.8 * max(high, linear))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.axhline(0, color="0.4", lw=0.8, zorder=1)
    ax.set_ylabel(f"Time added (ms; linear below {linear:g})")


def _draw_free(ax: Axes, lines: Sequence[Batching], names: dict[Way | None, str]) -> list[Any]:
    handles: list[Any] = []
    for way, group in together(lines, lambda one: one.way):
        marker, colour = looks(names.values())[names[way]]
        known = [(one.company.size, one.free) for one in group if one.free]
        sizes, tokens = [size for size, _ in known], [reached.tokens for _, reached in known]
        handles += draw_curve(ax, sizes, tokens, label=names[way], marker=marker, colour=colour, gid="free")
        limited = [(size, reached) for size, reached in known if reached.limit]
        for size, reached in limited:
            caret: dict[str, Any] = {"marker": CARETS[reached.limit], "color": "black", "ms": 8, "zorder": 7}
            ax.plot([size], [reached.tokens.value], ls="", gid="limit", **caret)
        handles += [CARET] if limited else []
    log2_axis(ax, [one.company.size for one in lines], "Sequences of the decode step")
    log_axis(ax, "Tokens that ride free")
    return handles


def _free_names(found: Sequence[Batching]) -> dict[Way | None, str]:
    """Legend by the way of copying; None is recompute."""
    names, _ = told_apart(one.way for one in found if one.way)
    return {None: "free: recompute"} | {way: f"free: swap in, {name}" for way, name in names.items()}
