"""Crossings of two cost curves, with intervals from the resamples of both.

Curves come from fits (`analysis.cost_model`) or from measured medians. Crossings of fits are found by brentq between
the points of a logarithmic grid, those of medians and of resamples by interpolation, linear in log(x) and log(ratio).
Every resample of the fits is carried through, so the intervals need no formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from analysis.intervals import CONFIDENCE, Estimate, Interval

Floats = NDArray[np.float64]
GRID = 129
EQUAL = 1e-12  # relative difference that counts as none
Curves = Callable[[float], tuple[Estimate, Estimate]]  # x -> (swap, recompute), seconds


@dataclass(frozen=True)
class Crossing:
    """A point where both cost the same.

    Attributes
    ----------
    at : float
        In the unit of the axis.
    cheaper_below, cheaper_above : str
        "swap" or "recompute"; "unknown" beyond the end of the range.
    interval : Interval or None
        95 %; its ends stop at the ends of the range, see `open_low` and `open_high`.
    share : float
        Part of the resamples that have this crossing within the range; 1 without resamples.
    """

    at: float
    cheaper_below: str
    cheaper_above: str
    interval: Interval | None = None
    share: float = 1.0
    open_low: bool = False
    open_high: bool = False


@dataclass(frozen=True)
class Crossover:
    """All crossings within a range, ascending; `always` names the cheaper one where there is none.

    `certainty` is the part of the resamples that agree with the count of crossings and with what is cheaper at the low
    end; None without resamples. `notes` say where fits were asked beyond their data.
    """

    axis: str
    low: float
    high: float
    crossings: tuple[Crossing, ...]
    always: str | None
    certainty: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The answer in words."""
        if not self.crossings:
            faster = "equally fast" if self.always == "equal" else f"{self.always} always faster"
            return f"never within {self.low:.4g}..{self.high:.4g} {self.axis}: {faster}"
        parts = [
            f"at {c.at:.4g} {self.axis}{_ends(c)} ({c.cheaper_below} faster below, {c.cheaper_above} above)"
            for c in self.crossings
        ]
        return "; ".join(parts)


def _ends(crossing: Crossing) -> str:
    if crossing.interval is None:
        return ""
    low, high = (f"{end:.4g}" for end in crossing.interval)
    return f" [{'below ' if crossing.open_low else ''}{low} to {'above ' if crossing.open_high else ''}{high}]"


def crossover(curves: Curves, axis: str, low: float, high: float) -> Crossover:
    """Crossings of two curves between `low` and `high`. ValueError unless 0 < low < high."""
    if not 0 < low < high:
        raise ValueError(f"range {low}..{high} of {axis}: 0 < low < high is needed")
    xs = np.geomspace(low, high, GRID)
    xs[0], xs[-1] = low, high

    def root(left: float, right: float) -> float:
        from scipy.optimize import brentq  # imports that reading files does not need

        return math.exp(brentq(lambda u: _log_ratio(*_values(curves(math.exp(u)))), math.log(left), math.log(right)))

    return _solve(axis, xs, [curves(float(x)) for x in xs], root)


def crossover_measured(points: Sequence[tuple[float, Estimate, Estimate]], axis: str) -> Crossover:
    """Crossings between measured medians: (x, swap, recompute) ascending in x. ValueError with fewer than two."""
    if len(points) < 2:
        raise ValueError(f"{len(points)} points of {axis}; a crossing needs two or more")
    return _solve(axis, np.array([x for x, _, _ in points]), [(swap, other) for _, swap, other in points], None)


def _solve(
    axis: str, xs: Floats, pairs: Sequence[tuple[Estimate, Estimate]], root: Callable[[float, float], float] | None
) -> Crossover:
    ratios = np.array([_log_ratio(*_values(pair)) for pair in pairs])
    draws = _draws(pairs)
    found = _changes(np.log(xs), ratios)
    crossings = []
    for place, below, above in found:
        right = int(np.searchsorted(np.log(xs), place, side="right"))
        inside = root is not None and 0 < right < len(xs) and ratios[right - 1] * ratios[right] < 0
        at = root(float(xs[right - 1]), float(xs[right])) if root and inside else math.exp(place)
        crossings.append(_with_interval(Crossing(at, _side(below), _side(above)), xs, draws))
    nonzero = ratios[ratios != 0]
    always = None if crossings else _side(nonzero[0]) if nonzero.size else "equal"
    certainty = None if draws is None else _agreement(np.log(xs), draws, found, ratios)
    return Crossover(axis, float(xs[0]), float(xs[-1]), tuple(crossings), always, certainty)


def _values(pair: tuple[Estimate, Estimate]) -> tuple[float, float]:
    return pair[0].value, pair[1].value


def _log_ratio(swap: float, recompute: float) -> float:
    """log(recompute / swap): positive where swap is cheaper."""
    ratio = math.log(recompute / swap)
    return 0.0 if abs(ratio) < EQUAL else ratio


def _draws(pairs: Sequence[tuple[Estimate, Estimate]]) -> Floats | None:
    """log(recompute / swap) of each resample, shape (resamples, x)."""
    rows = []
    for swap, recompute in pairs:
        if swap.draws is None and recompute.draws is None:
            return None
        above = recompute.value if recompute.draws is None else recompute.draws
        below = swap.value if swap.draws is None else swap.draws
        rows.append(np.log(above / below))
    return np.array(rows).T


def _side(log_ratio: float) -> str:
    return "swap" if log_ratio > 0 else "recompute" if log_ratio < 0 else "unknown"


def _changes(u: Floats, y: Floats) -> list[tuple[float, float, float]]:
    """(log x, sign below, sign above) of each change of sign; a tie at an end of the range counts, 0 beyond it."""
    found = []
    known = np.flatnonzero(y)
    if not known.size:
        return []
    if known[0] > 0:
        found.append((float(u[known[0] - 1]), 0.0, float(np.sign(y[known[0]]))))
    for a, b in pairwise(known):
        if y[a] * y[b] < 0:
            at = u[a] - y[a] * (u[b] - u[a]) / (y[b] - y[a]) if b == a + 1 else u[a + 1]
            found.append((float(at), float(np.sign(y[a])), float(np.sign(y[b]))))
    if known[-1] < len(y) - 1:
        found.append((float(u[known[-1] + 1]), float(np.sign(y[known[-1]])), 0.0))
    return found


def _with_interval(crossing: Crossing, xs: Floats, draws: Floats | None) -> Crossing:
    """The nearest crossing of the same kind in each resample; one that left the range counts as at its end."""
    if draws is None:
        return crossing
    u, at = np.log(xs), math.log(crossing.at)
    above = 1.0 if crossing.cheaper_above == "swap" or crossing.cheaper_below == "recompute" else -1.0
    places, present = np.empty(len(draws)), 0
    for index, y in enumerate(draws):
        same = [place for place, _, sign in _changes(u, y) if sign == above]
        if same:
            places[index] = min(same, key=lambda place: abs(place - at))
            present += 1
        else:
            places[index] = u[0] if np.interp(at, u, y) * above > 0 else u[-1]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(places, (tail, 1 - tail))
    return Crossing(
        crossing.at,
        crossing.cheaper_below,
        crossing.cheaper_above,
        Interval(math.exp(low), math.exp(high)),
        present / len(draws),
        bool(low <= u[0]),
        bool(high >= u[-1]),
    )


def _agreement(u: Floats, draws: Floats, found: list[tuple[float, float, float]], ratios: Floats) -> float:
    same = [len(_changes(u, y)) == len(found) and np.sign(y[0]) == np.sign(ratios[0]) for y in draws]
    return float(np.mean(same))
