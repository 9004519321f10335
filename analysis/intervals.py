"""Medians over rounds, and percentile-bootstrap intervals of them, of their sums and of their ratios.

One scheme everywhere: rounds are resampled with replacement (Efron, 1979); with several sessions, sessions first and
then rounds of each, because pinned pages, clocks and allocator state are drawn once a process. Sums and ratios
combine the resampled medians of quantities that were measured apart, so their intervals need no formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 19
BATCH_VALUES = 1_000_000  # resampled rounds held at once: 8 MB


class Interval(NamedTuple):
    """Lower and upper end of a 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number with its bootstrap distribution.

    Attributes
    ----------
    value : float
        From the rounds as measured.
    draws : numpy.ndarray or None
        The same number from each resample, shape (RESAMPLES,); None where one round says nothing of the spread.
    """

    value: float
    draws: Floats | None = None

    @property
    def interval(self) -> Interval | None:
        """Percentile interval; None without draws."""
        if self.draws is None:
            return None
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(self.draws, (tail, 1 - tail))
        return Interval(float(low), float(high))

    def __add__(self, other: Estimate) -> Estimate:
        """Sum of two quantities measured apart."""
        draws = None if self.draws is None or other.draws is None else self.draws + other.draws
        return Estimate(self.value + other.value, draws)

    def __sub__(self, other: Estimate) -> Estimate:
        """Difference of two quantities measured apart."""
        return self + other * -1

    def __truediv__(self, other: Estimate) -> Estimate:
        """Ratio of two quantities measured apart."""
        draws = None if self.draws is None or other.draws is None else self.draws / other.draws
        return Estimate(self.value / other.value, draws)

    def __mul__(self, factor: float) -> Estimate:
        """The quantity in another unit, or times a constant."""
        return Estimate(self.value * factor, None if self.draws is None else self.draws * factor)


def median(sessions: Sequence[Floats], key: Sequence[int] = ()) -> Estimate:
    """Median over all rounds of all sessions.

    Parameters
    ----------
    sessions : sequence of numpy.ndarray
        One array of rounds a session.
    key : sequence of int
        What is measured, as numbers: quantities with different keys are resampled independently of each other,
        and the same key gives the same interval every time.

    Raises
    ------
    ValueError
        If there is no round.
    """
    rounds = np.concatenate([np.empty(0), *sessions])
    if not rounds.size:
        raise ValueError("the median of no rounds; at least one is needed")
    rng = np.random.default_rng((SEED, *key))
    if rounds.size == 1:
        return Estimate(float(rounds[0]))
    draws = _resample_rounds(rounds, rng) if len(sessions) == 1 else _resample_sessions(sessions, rng)
    return Estimate(float(np.median(rounds)), draws)


def _resample_rounds(rounds: Floats, rng: np.random.Generator) -> Floats:
    from scipy.stats import bootstrap  # half a second of import that reading and checking files do not need

    result = bootstrap((rounds,), np.median, n_resamples=RESAMPLES, method="percentile", rng=rng, batch=256)
    return np.asarray(result.bootstrap_distribution, dtype=float)


def _resample_sessions(sessions: Sequence[Floats], rng: np.random.Generator) -> Floats:
    """Sessions, then rounds of each drawn session; scipy's bootstrap has one level only."""
    lengths = np.array([len(session) for session in sessions])
    padded = np.full((len(sessions), lengths.max()), np.nan)
    for row, session in zip(padded, sessions, strict=True):
        row[: len(session)] = session
    batch = max(1, BATCH_VALUES // padded.size)
    parts = [_two_level(padded, lengths, min(batch, RESAMPLES - done), rng) for done in range(0, RESAMPLES, batch)]
    return np.concatenate(parts)


def _two_level(padded: Floats, lengths: NDArray[np.int64], count: int, rng: np.random.Generator) -> Floats:
    drawn = rng.integers(len(padded), size=(count, len(padded)))
    length = lengths[drawn][..., None]
    picks = (rng.random((*drawn.shape, padded.shape[1])) * length).astype(np.int64)
    rounds = padded[drawn[..., None], picks]
    rounds[np.broadcast_to(np.arange(padded.shape[1]) >= length, rounds.shape)] = np.nan
    flat = rounds.reshape(count, -1)
    return np.asarray(np.nanmedian(flat, axis=1) if (lengths != lengths[0]).any() else np.median(flat, axis=1))
