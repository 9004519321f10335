"""Part of a sequence computed while the rest is swapped in: the best split as measured, and as curves predict it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.intervals import Estimate, Floats
from analysis.load import plain_recompute
from analysis.recovery_rows import Subject, Way, cases, fact, groups, is_suspect, joint, seconds

STEPS = 200  # of a sequence, that the prediction from two curves is searched in
PARTS, CURVES = "each part alone", "swap and recompute over the length"


@dataclass(frozen=True, eq=False)
class Split:
    """One fraction.

    Attributes
    ----------
    fraction : float
        Part of the tokens that is computed: `front_tokens` of them.
    time : Estimate
        Seconds of both parts at once.
    front_alone_s, rest_alone_s : float
        Seconds of each part alone; 0 where it is empty.
    bound_s : float
        The longer of the two, which nothing that overlaps them can beat.
    """

    fraction: float
    front_tokens: int
    time: Estimate
    front_alone_s: float
    rest_alone_s: float
    suspect: bool

    @property
    def bound_s(self) -> float:
        """max(front alone, rest alone)."""
        return max(self.front_alone_s, self.rest_alone_s)


@dataclass(frozen=True, eq=False)
class Predicted:
    """The fraction at which the slower of both parts is fastest.

    Attributes
    ----------
    by : str
        `PARTS`: from each part timed alone. `CURVES`: from rows of swap in and recompute over the length.
    fraction, time : Estimate
        That fraction, and seconds of the slower part there.
    """

    by: str
    fraction: Estimate
    time: Estimate


@dataclass(frozen=True, eq=False)
class Hybrid:
    """One length and way of copying over the fraction.

    Attributes
    ----------
    splits : tuple of Split
        Fractions ascending.
    best : Split
        The fastest.
    best_fraction : Estimate
        Its fraction; draws are the fastest fraction of each resample.
    to_faster : Estimate or None
        Best / the faster of fraction 0 (swap) and 1 (recompute); None unless both were timed.
    to_bound : Estimate or None
        Best / its bound; None without a bound.
    predicted : tuple of Predicted
        By each way of predicting that the rows suffice for.
    """

    subject: Subject
    way: Way
    seq_len: int
    splits: tuple[Split, ...]
    best: Split
    best_fraction: Estimate
    to_faster: Estimate | None
    to_bound: Estimate | None
    predicted: tuple[Predicted, ...]


def hybrid(frame: pd.DataFrame) -> list[Hybrid]:
    """One `Hybrid` a machine, model, way of copying and length.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `analysis.load.load`; its rows of swap and recompute predict the split as well.
    """
    curves = _Curves(frame)
    found = []
    for subject, way, axes, group in groups(frame[frame["recovery"] == "hybrid"], "seq_len"):
        if way is not None:
            splits = tuple(_split(fraction, case) for fraction, case in cases(group, "fraction"))
            found.append(_hybrid(subject, way, axes["seq_len"], splits, curves))
    return found


def _split(fraction: float, case: pd.DataFrame) -> Split:
    front_s, rest_s = (fact(case, f"{part}_alone_s") or 0.0 for part in ("front", "rest"))
    tokens = int(fact(case, "front_tokens") or 0)
    return Split(float(fraction), tokens, seconds(case), front_s, rest_s, is_suspect(case))


def _hybrid(subject: Subject, way: Way, seq_len: int, splits: tuple[Split, ...], curves: _Curves) -> Hybrid:
    best = min(splits, key=lambda split: split.time.value)
    fractions, draws = np.array([split.fraction for split in splits]), joint([split.time for split in splits])
    ends = [split.time for split in splits if split.fraction in (0, 1)]
    faster = min(ends, key=lambda time: time.value) if len(ends) == 2 else None
    predicted = (_from_parts(splits), curves.predict(subject, way, seq_len))
    return Hybrid(
        subject,
        way,
        seq_len,
        splits,
        best,
        Estimate(best.fraction, None if draws is None else fractions[draws.argmin(axis=1)]),
        best.time / faster if faster else None,
        best.time * (1 / best.bound_s) if best.bound_s else None,
        tuple(one for one in predicted if one),
    )


def _from_parts(splits: tuple[Split, ...]) -> Predicted | None:
    """Both parts between the fractions that were timed; 0 and 1 count if they were.

    Between 0 and the next fraction nothing is interpolated: a prefill of a single token has to read all weights.
    """
    mixed = [split for split in splits if split.front_alone_s > 0 and split.rest_alone_s > 0]
    whole = [split for split in splits if split.fraction in (0, 1) and split.bound_s > 0]
    if not mixed:
        return None
    known = [split.fraction for split in mixed]
    fractions = np.concatenate([np.linspace(known[0], known[-1], STEPS + 1), [split.fraction for split in whole]])
    parts = [np.interp(fractions, known, [getattr(split, name) for split in mixed]) for name in _PARTS]
    times = np.maximum(*parts)
    if whole:
        times[-len(whole) :] = [split.bound_s for split in whole]
    at = int(times.argmin())
    return Predicted(PARTS, Estimate(float(fractions[at])), Estimate(float(times[at])))


_PARTS = ("front_alone_s", "rest_alone_s")
Curve = tuple[Floats, list[Estimate]]  # tokens of a sequence, ascending, and seconds


class _Curves:
    """Recompute and swap in over the length, as other rows of the same frame have them."""

    def __init__(self, frame: pd.DataFrame) -> None:
        swaps = (frame["recovery"] == "swap") & (frame["direction"] == "swap_in") & frame["verified"].astype(bool)
        self._prefills = {subject: _curve(rows) for subject, _, _, rows in groups(frame[plain_recompute(frame)])}
        self._swaps = {(subject, way): _curve(rows) for subject, way, _, rows in groups(_blocks(frame[swaps]))}

    def predict(self, subject: Subject, way: Way, seq_len: int) -> Predicted | None:
        """None unless both curves have two lengths and reach `seq_len`.

        Below the shortest length its time is taken: both curves have a floor.
        """
        prefill, swap = self._prefills.get(subject), self._swaps.get((subject, way))
        if prefill is None or swap is None or any(len(x) < 2 or x[-1] < seq_len for x, _ in (prefill, swap)):
            return None
        fractions = np.linspace(0, 1, STEPS + 1)
        front, rest = _over(prefill, fractions * seq_len), _over(swap, (1 - fractions) * seq_len)
        times = np.maximum(front, rest)
        at = times.argmin(axis=1)
        draws = (fractions[at[1:]], times.min(axis=1)[1:]) if len(times) > 1 else (None, None)
        found = (float(fractions[at[0]]), float(times[0].min()))
        return Predicted(CURVES, *(Estimate(value, drawn) for value, drawn in zip(found, draws, strict=True)))


def _blocks(swaps: pd.DataFrame) -> pd.DataFrame:
    """Without ceilings, which have no blocks."""
    return swaps[swaps["block_size"].notna()]


def _curve(rows: pd.DataFrame) -> Curve:
    points = [(float(tokens), seconds(case)) for tokens, case in cases(rows, "seq_len")]
    return np.array([tokens for tokens, _ in points]), [time for _, time in points]


def _over(curve: Curve, tokens: Floats) -> Floats:
    """Seconds at each number of tokens, 0 for none: first as measured, then of each resample; (1 + resamples, n)."""
    lengths, times = curve
    draws = joint(times)
    rows = [np.array([time.value for time in times]), *([] if draws is None else draws)]
    return np.where(tokens > 0, np.array([np.interp(tokens, lengths, row) for row in rows]), 0.0)
