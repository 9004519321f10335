"""How much a step and a swap slow each other down when they run beside, by copy method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.drawing import entitle, legend_below, looks, mark_style, new_figure, suspect_handle
from analysis.figures_batching import company_text
from analysis.recoveries import Interference
from analysis.recovery_rows import together, told_apart

WIDTH_INCHES, LINE_INCHES, BORDER_INCHES = 6.0, 0.36, 1.7
TITLE_LETTERS = 46  # beside the names of copy methods
SHARED = 0.6  # of a method's line, by its companies
TIMED = {"company": "the step", "swap": "the swap"}
WHAT = {"company": "the step, beside it a {}", "swap": "a {}, beside it the step"}
DIRECTIONS = {"swap_in": "swap in", "swap_out": "swap out"}
INTERVAL = Line2D([], [], color="0.3", marker="|", ms=8, ls="-", label="95 % interval of the median")
UNDISTURBED: dict[str, Any] = {"color": "black", "lw": 1.2, "ls": "-", "zorder": 2}


def draw_interference(found: Sequence[Interference]) -> Figure:
    """Time beside over time alone: a panel a model, direction, length and what is timed; a line a copy method.

    Parameters
    ----------
    found : sequence of Interference
        At least one.
    """
    pairs = together(found, lambda one: (one.subject, one.direction, one.seq_len))
    panels = [
        ((*place, timed), part)
        for place, pair in pairs
        for timed in TIMED
        if (part := [one for one in pair if one.timed == timed])
    ]
    lines = max(len({one.way for one in mine}) for _, mine in panels)
    figure, axes = new_figure(len(panels), min(2, len(panels)), (WIDTH_INCHES, LINE_INCHES * lines + BORDER_INCHES))
    companies = sorted({one.company for one in found}, key=lambda one: (one.kind, one.size, one.context or 0))
    styles = looks(map(company_text, companies))
    handles: list[Any] = []
    for ax, ((subject, direction, tokens, timed), mine) in zip(axes, panels, strict=True):
        handles += _draw_panel(ax, mine, styles)
        ax.set_xlabel(f"Time of {TIMED[timed]}: beside / alone")
        _, blocks = told_apart(one.way for one in mine)
        what = WHAT[timed].format(f"{DIRECTIONS[direction]} of {tokens:,} tokens")
        entitle(ax, (subject.name, subject.what, what, blocks), TITLE_LETTERS, subject.backend == "cpu")
    legend_below(figure, handles)
    return figure


def _draw_panel(ax: Axes, mine: Sequence[Interference], styles: dict[str, tuple[str, Any]]) -> list[Any]:
    names, _ = told_apart(one.way for one in mine)
    here = list(dict.fromkeys(company_text(one.company) for one in mine))
    offsets = dict(zip(styles, np.linspace(-SHARED / 2, SHARED / 2, len(styles)), strict=True))
    handles: list[Any] = []
    for one in mine:
        company = company_text(one.company)
        marker, colour = styles[company]
        place = list(names).index(one.way) + (offsets[company] if len(here) > 1 else 0)
        if ends := one.factor.interval:
            ax.plot(ends, [place, place], color=colour, marker="|", ms=5, lw=1.5, zorder=3, gid="interval")
            handles.append(INTERVAL)
        style = mark_style(marker, colour, "measured", suspect=one.suspect)
        ax.plot([one.factor.value], [place], ls="", zorder=4, gid=one.timed, **style)
        handles.append(Line2D([], [], ls="", label=f"{company} (measured)", **mark_style(marker, colour, "measured")))
        handles += [suspect_handle()] if one.suspect else []
    ax.axvline(1, **UNDISTURBED)
    ax.set_yticks(range(len(names)), list(names.values()))
    ax.set_ylim(len(names) - 0.5, -0.5)
    return handles
