"""How a prefill's time and rate grow with its tokens, against what the same session's probes reached at most."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.drawing import (
    PALETTE,
    draw_curve,
    entitle,
    legend_below,
    log2_axis,
    log_axis,
    new_figure,
)
from analysis.intervals import Estimate
from analysis.recoveries import TURNED, Ridge, RidgePoint
from kernels.specs import peak_flops

INCHES = (5.6, 4.4)
MS, TFLOP = 1e3, 1e-12
ABOVE = 1.5  # times the highest peak, up to which the memory roof is drawn
PREFILL = ("o", PALETTE[0])
ROOFS = {
    "memory roof: least bytes / measured rate": ("v", PALETTE[2]),
    "compute roof: FLOP / rate of the largest product": ("^", PALETTE[3]),
}
PRODUCT: dict[str, Any] = {"color": "black", "lw": 1.8, "ls": (0, (8, 2, 1, 2))}
SHEET: dict[str, Any] = {"color": "0.35", "lw": 1.5, "ls": (0, (5, 2))}
TURN: dict[str, Any] = {"color": "black", "lw": 1.2, "ls": "-"}
CROSS: dict[str, Any] = {"color": "black", "lw": 1.2, "ls": ":"}


def draw_ridge(found: Sequence[Ridge]) -> Figure:
    """Time, and achieved TFLOP/s, over the tokens of a prefill, log-log: two panels a model and machine.

    The two roofs are what a perfect prefill would take at the rates that a copy within device memory and a product
    of two matrices reached in the same session (modelled, since no prefill did).

    Parameters
    ----------
    found : sequence of Ridge
        At least one.
    """
    figure, axes = new_figure(2 * len(found), 2, INCHES)
    handles: list[Any] = []
    for one, time_ax, rate_ax in zip(found, axes[::2], axes[1::2], strict=True):
        handles += _draw_times(time_ax, one)
        handles += _draw_rates(rate_ax, one)
        for ax, what in ((time_ax, _turns(one)), (rate_ax, _reached(one))):
            log2_axis(ax, [point.tokens for point in one.points], "Tokens of the prefill")
            entitle(ax, (one.subject.name, one.subject.what, what), 66, one.subject.backend == "cpu")
    legend_below(figure, handles)
    return figure


def _draw_times(ax: Axes, one: Ridge) -> list[Any]:
    handles = _draw(ax, one, lambda point: point.time, MS)
    for name, seconds in _roofs(one).items():
        handles += _draw_roof(ax, one, name, seconds, MS)
    log_axis(ax, "Time (ms)")
    return handles + _mark_turns(ax, one)


def _draw_rates(ax: Axes, one: Ridge) -> list[Any]:
    handles = _draw(ax, one, lambda point: point.flops_s, TFLOP)
    memory, _ = ROOFS
    peaks = _peaks(one)
    if memory in (roofs := _roofs(one)):
        rates = [_flops(point) / taken for point, taken in zip(one.points, roofs[memory], strict=True)]
        highest = ABOVE * max(value for value, _, _ in peaks) if peaks else math.inf
        _draw_roof(ax, one, memory, [rate for rate in rates if rate < highest], TFLOP)
    for value, style, label in peaks:
        ax.axhline(value * TFLOP, zorder=2.5, gid="peak", **style)
        handles.append(Line2D([], [], label=label, **style))
    log_axis(ax, "Achieved (TFLOP/s)")
    return handles + _mark_turns(ax, one)


def _draw(ax: Axes, one: Ridge, y: Callable[[RidgePoint], Estimate], unit: float) -> list[Any]:
    marker, colour = PREFILL
    return draw_curve(
        ax,
        [point.tokens for point in one.points],
        [y(point) for point in one.points],
        label="prefill",
        marker=marker,
        colour=colour,
        suspect=[point.suspect for point in one.points],
        unit=unit,
        gid="prefill",
    )


def _draw_roof(ax: Axes, one: Ridge, name: str, y: Sequence[float], unit: float) -> list[Any]:
    marker, colour = ROOFS[name]
    tokens = [point.tokens for point in one.points[: len(y)]]  # a rate that rises with the tokens is cut short
    about: dict[str, Any] = {"label": name, "origin": "modelled", "gid": "roof", "size": 4}
    return draw_curve(ax, tokens, [Estimate(value) for value in y], marker=marker, colour=colour, unit=unit, **about)


def _flops(point: RidgePoint) -> float:
    return point.flops_s.value * point.time.value


def _roofs(one: Ridge) -> dict[str, list[float]]:
    """Seconds at each point by the name of the roof; a roof whose rate was not measured is left out."""
    memory, product = ROOFS
    found = {}
    if one.memory_bytes_s and all(point.flop_per_byte for point in one.points):
        nbytes = [_flops(point) / (point.flop_per_byte or 1) for point in one.points]
        found[memory] = [size / one.memory_bytes_s.value for size in nbytes]
    if one.peak_flops_s:
        found[product] = [_flops(point) / one.peak_flops_s.value for point in one.points]
    return found


def _peaks(one: Ridge) -> list[tuple[float, dict[str, Any], str]]:
    """FLOP/s, line and legend of the peaks that are known."""
    subject = one.subject
    sheet = peak_flops(subject.hardware.split(",")[0], subject.dtype)
    measured = one.peak_flops_s and one.peak_flops_s.value
    known = ((measured, PRODUCT, "largest matrix product (measured)"), (sheet, SHEET, "data sheet's peak (published)"))
    return [(value, style, label) for value, style, label in known if value]


def _mark_turns(ax: Axes, one: Ridge) -> list[Any]:
    """Where the roofs cross, and where the prefill turns, if that lies within what was timed."""
    known = (
        (one.roofline_tokens, CROSS, "the ridge: both rates take equally long (modelled)"),
        (one.turn_tokens, TURN, f"{TURNED:g} x the time of the shortest prefill (measured)"),
    )
    handles = []
    for reached, style, label in known:
        if reached and not reached.limit:
            ax.axvline(reached.tokens.value, zorder=1.5, gid="turn", **style)
            handles.append(Line2D([], [], label=label, **style))
    return handles


def _turns(one: Ridge) -> str:
    ridge = f"ridge: {one.roofline_tokens.text} tokens" if one.roofline_tokens else ""
    turn = f"{TURNED:g} x the time of {one.floor_tokens:,}: {one.turn_tokens.text} tokens" if one.turn_tokens else ""
    return "; ".join(filter(None, (ridge, turn)))


def _reached(one: Ridge) -> str:
    """The best of all prefills against both peaks."""
    best = max(one.points, key=lambda point: point.flops_s.value)
    mfu = f"MFU {best.mfu:.0%}" if best.mfu else ""
    of_product = f"{best.mfu_gemm:.0%} of the largest product" if best.mfu_gemm else ""
    shares = ", ".join(filter(None, (mfu, of_product)))
    return f"{best.tokens:,} tokens: {shares}" if shares else ""
