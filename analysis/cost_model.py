"""Cost of a copy and of a prefill as a few constants with intervals, or a refusal to give any.

copy
    t = max(issue_fixed + n * issue_per_copy, fixed + n * per_copy + bytes / rate): the host submits n descriptors while
    the device works through them. The larger of the two holds (per descriptor: `roofline_check.py` of the project's
    notes; vLLM blog 2026-01-08, figures 3 and 4, shows both parts).
prefill
    t = max(floor, fixed + linear * tokens + quadratic * tokens^2): below some hundred tokens the weights are read once
    whatever the length; above, linear layers, then attention.

A fit that misses cases it did not see by more than `HELD_OUT_LIMIT` carries a `refusal` and gives no seconds.
Intervals hold the noise of rounds and sessions (of residuals, where only published medians are known).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.fitting import HELD_OUT_LIMIT, Solution, copy_seconds, prefill_seconds, solve_copies, solve_prefill
from analysis.intervals import CONFIDENCE, Interval
from analysis.observations import CopyKey, Observations, PrefillKey, copy_observations, prefill_observations

__all__ = [
    "HELD_OUT_LIMIT",
    "BadFit",
    "CopyFit",
    "CopyKey",
    "PrefillFit",
    "PrefillKey",
    "fit_copies",
    "fit_prefill",
]

Floats = NDArray[np.float64]
RESAMPLES = 200


class BadFit(ValueError):
    """Seconds were asked of a fit that does not describe its own data. The message says why."""


@dataclass(frozen=True, eq=False)
class CopyFit:
    """Constants of one copy method in one direction; see the module for the formula.

    Attributes
    ----------
    fixed_s, per_copy_s : float
        Device side: seconds a plan and seconds a descriptor.
    bytes_s : float
        Bytes a second, inf where the bytes did not show in the times.
    issue_fixed_s, issue_per_copy_s : float
        Host side: seconds a plan and seconds a descriptor; 0 on a CPU, where submitting is copying.
    intervals : dict
        95 % `Interval` of each of the five by its name; empty without draws.
    worst_held_out : float
        Largest relative miss at cases the fit did not see; nan where there were too few.
    refusal : str or None
        Why these constants are not to be used.
    notes : tuple of str
        What the data could not tell apart.
    draws : numpy.ndarray or None
        Parameters of each resample, shape (resamples, 5): fixed, per copy, seconds a byte, issue fixed, issue per copy.
    points : pandas.DataFrame
        descriptors, bytes, seconds, fitted, residual (fitted / seconds - 1).
    """

    fixed_s: float
    per_copy_s: float
    bytes_s: float
    issue_fixed_s: float = 0.0
    issue_per_copy_s: float = 0.0
    intervals: dict[str, Interval] = field(default_factory=dict)
    worst_held_out: float = float("nan")
    refusal: str | None = None
    notes: tuple[str, ...] = ()
    draws: Floats | None = None
    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    origin: str = "measured"

    def seconds(self, descriptors: float, nbytes: float) -> float:
        """Wall seconds of a plan of `descriptors` copies and `nbytes` bytes. BadFit if the fit is refused."""
        _check(self.refusal)
        return float(copy_seconds(self._theta, descriptors, nbytes))

    def issue_seconds(self, descriptors: float) -> float:
        """Host seconds to submit `descriptors` copies. BadFit if the fit is refused."""
        _check(self.refusal)
        return self.issue_fixed_s + descriptors * self.issue_per_copy_s

    def draw_seconds(self, descriptors: float, nbytes: float) -> Floats | None:
        """`seconds` of each resample; None without draws. BadFit if the fit is refused."""
        _check(self.refusal)
        return None if self.draws is None else copy_seconds(self.draws, descriptors, nbytes)

    def at_rate(self, bytes_s: float) -> CopyFit:
        """The same machine with another link: only bytes a second changes."""
        draws = None
        if self.draws is not None:
            draws = self.draws.copy()
            draws[:, 2] = 1 / bytes_s
        intervals = {name: ends for name, ends in self.intervals.items() if name != "bytes_s"}
        return replace(self, bytes_s=bytes_s, draws=draws, intervals=intervals, origin="modelled")

    @property
    def _theta(self) -> Floats:
        return np.array(
            [self.fixed_s, self.per_copy_s, 1 / self.bytes_s, self.issue_fixed_s, self.issue_per_copy_s], dtype=float
        )


@dataclass(frozen=True, eq=False)
class PrefillFit:
    """Constants of one model's prefill on one machine; see the module for the formula.

    Attributes
    ----------
    floor_s : float
        Least time, one read of the weights; 0 where neither the data nor a data sheet gives it.
    fixed_s, linear_s, quadratic_s : float
        Seconds, seconds a token, seconds a token squared.
    floor_source : str
        "fitted", "data sheet" (weight bytes / memory bandwidth) or "none".
    draws : numpy.ndarray or None
        Shape (resamples, 4): floor, fixed, linear, quadratic.
    points : pandas.DataFrame
        tokens, seconds, fitted, residual.

    The other fields are those of `CopyFit`.
    """

    floor_s: float
    fixed_s: float
    linear_s: float
    quadratic_s: float
    intervals: dict[str, Interval] = field(default_factory=dict)
    worst_held_out: float = float("nan")
    refusal: str | None = None
    notes: tuple[str, ...] = ()
    floor_source: str = "fitted"
    draws: Floats | None = None
    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    origin: str = "measured"

    def seconds(self, tokens: float) -> float:
        """Seconds of a prefill of `tokens` tokens. BadFit if the fit is refused."""
        _check(self.refusal)
        theta = np.array([self.floor_s, self.fixed_s, self.linear_s, self.quadratic_s])
        return float(prefill_seconds(theta, tokens))

    def for_batch(self, sequences: float) -> PrefillFit:
        """The fit of `sequences` sequences of as many tokens each: floor and fixed part once, the rest for each."""
        times = np.array([1.0, 1.0, sequences, sequences])
        draws = None if self.draws is None else self.draws * times
        return replace(
            self,
            linear_s=self.linear_s * sequences,
            quadratic_s=self.quadratic_s * sequences,
            draws=draws,
            intervals={},
            origin="modelled",
        )

    def draw_seconds(self, tokens: float) -> Floats | None:
        """`seconds` of each resample; None without draws. BadFit if the fit is refused."""
        _check(self.refusal)
        return None if self.draws is None else prefill_seconds(self.draws, tokens)


def fit_copies(frame: pd.DataFrame, resamples: int = RESAMPLES) -> dict[CopyKey, CopyFit]:
    """Fit every machine, method, layout, placement and direction of a frame.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `analysis.load.load` (swaps and copies whose bytes were verified; points are medians of the wall clock over
        rounds and sessions) or of `analysis.published.load_published`.
    resamples : int
        Refits for the intervals; 0 for none.
    """
    return {key: _fit_copy(key, seen, resamples) for key, seen in copy_observations(frame, resamples).items()}


def fit_prefill(frame: pd.DataFrame, resamples: int = RESAMPLES) -> dict[PrefillKey, PrefillFit]:
    """Fit every machine, model, dtype and batch of a frame (as `fit_copies`); tokens are those of the whole batch.

    Rows of fewer layers are scaled first (`analysis.scaling`); published sums of kernels and served times are fits of
    their own.
    """
    return {key: _fit_prefill(key, seen, resamples) for key, seen in prefill_observations(frame, resamples).items()}


def _fit_copy(key: CopyKey, seen: Observations, resamples: int) -> CopyFit:
    solved = solve_copies(seen, key, resamples)
    names = ("fixed_s", "per_copy_s", "bytes_s", "issue_fixed_s", "issue_per_copy_s")
    draws = None if solved.draws is None else _as_rates(solved.draws)
    constants = _named(names, _as_rates(solved.theta))
    return CopyFit(**constants, intervals=_intervals(names, draws), **_shared(solved, key.origin))


def _fit_prefill(key: PrefillKey, seen: Observations, resamples: int) -> PrefillFit:
    solved = solve_prefill(seen, key, resamples)
    names = ("floor_s", "fixed_s", "linear_s", "quadratic_s")
    return PrefillFit(
        **_named(names, solved.theta),
        intervals=_intervals(names, solved.draws),
        floor_source=solved.floor_source,
        **_shared(solved, key.origin),
    )


def _shared(solved: Solution, origin: str) -> dict[str, Any]:
    return {
        "worst_held_out": solved.worst_held_out,
        "refusal": solved.refusal,
        "notes": solved.notes,
        "draws": solved.draws,
        "points": solved.points,
        "origin": origin,
    }


def _named(names: tuple[str, ...], values: Floats) -> dict[str, Any]:
    return dict(zip(names, map(float, values), strict=True))


def _as_rates(theta: Floats) -> Floats:
    """Seconds a byte to bytes a second, in the third column."""
    found = theta.copy()
    with np.errstate(divide="ignore"):
        found[..., 2] = 1 / theta[..., 2]
    return found


def _intervals(names: tuple[str, ...], draws: Floats | None) -> dict[str, Interval]:
    if draws is None:
        return {}
    tail = (1 - CONFIDENCE) / 2
    ends = np.quantile(draws, (tail, 1 - tail), axis=0, method="closest_observation")
    return {name: Interval(float(low), float(high)) for name, low, high in zip(names, *ends, strict=True)}


def _check(refusal: str | None) -> None:
    if refusal is not None:
        raise BadFit(refusal)
