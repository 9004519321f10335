"""One sequence preempted again and again, and the way from "resume" to the next token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.intervals import Estimate
from analysis.recovery_rows import Subject, Way, cases, fact, groups, is_suspect, joint, seconds


@dataclass(frozen=True, eq=False)
class Repeated:
    """All of `preemptions` preemptions, one after the other.

    Attributes
    ----------
    time : Estimate
        Seconds of all of them.
    lengths, bytes_out, bytes_in : tuple of int
        At each of them: tokens, bytes to the host and from it.
    """

    preemptions: int
    time: Estimate
    lengths: tuple[int, ...]
    bytes_out: tuple[int, ...]
    bytes_in: tuple[int, ...]
    suspect: bool


@dataclass(frozen=True, eq=False)
class Preemptions:
    """One policy over the number of preemptions.

    Attributes
    ----------
    policy : str
        "recompute", "swap", or "swap_kept": the host keeps its copy, and only new blocks go out.
    seq_len, growth_tokens : int
        Tokens at the first preemption, and by how many more each one after that.
    points : tuple of Repeated
        Numbers of preemptions ascending.
    per_preemption : Estimate or None
        Seconds of one more: slope of a line through the points; None for one point.
    """

    subject: Subject
    policy: str
    way: Way | None
    seq_len: int
    growth_tokens: int
    points: tuple[Repeated, ...]
    per_preemption: Estimate | None

    def at(self, preemptions: int) -> Repeated | None:
        """The point of so many preemptions; None if it was not timed."""
        return next((point for point in self.points if point.preemptions == preemptions), None)


@dataclass(frozen=True, eq=False)
class Kept:
    """What keeping the host copy saves.

    Attributes
    ----------
    saved : tuple of (int, Estimate)
        (preemptions, seconds of "swap" less those of "swap_kept"), where both were timed.
    """

    subject: Subject
    way: Way
    seq_len: int
    growth_tokens: int
    saved: tuple[tuple[int, Estimate], ...]


@dataclass(frozen=True, eq=False)
class Resumed:
    """From "resume" to the logits of the next token.

    Attributes
    ----------
    swap : Estimate
        Seconds of swapping in all but the last token, and one decode step.
    step_alone_s : float or None
        Seconds of that step alone.
    recompute : Estimate or None
        Seconds of a prefill, which ends with the logits; None where it was not timed.
    ratio : Estimate or None
        recompute / swap: below 1 recompute is faster.
    """

    subject: Subject
    way: Way
    seq_len: int
    swap: Estimate
    step_alone_s: float | None
    recompute: Estimate | None
    ratio: Estimate | None
    suspect: bool


def preemptions(frame: pd.DataFrame) -> list[Preemptions]:
    """One `Preemptions` a machine, model, policy, way of copying, length and growth.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `analysis.load.load`.
    """
    rows = frame[frame["recovery"] == "preemptions"]
    found = []
    for subject, way, axes, group in groups(rows, "policy", "seq_len", "growth_tokens"):
        points = tuple(_repeated(int(count), case) for count, case in cases(group, "preemptions"))
        sizes = axes["seq_len"], axes["growth_tokens"]
        found.append(Preemptions(subject, axes["policy"], way, *sizes, points, _slope(points)))
    return found


def kept(found: list[Preemptions]) -> list[Kept]:
    """Of what `preemptions` found: "swap" against "swap_kept", everything else alike."""
    pairs = []
    for swap in found:
        if swap.policy != "swap" or swap.way is None:
            continue
        other = next((one for one in found if one.policy == "swap_kept" and _place(one) == _place(swap)), None)
        saved = [(p.preemptions, p.time - q.time) for p in swap.points if other and (q := other.at(p.preemptions))]
        if saved:
            pairs.append(Kept(swap.subject, swap.way, swap.seq_len, swap.growth_tokens, tuple(saved)))
    return pairs


def resume(frame: pd.DataFrame) -> list[Resumed]:
    """One `Resumed` a machine, model, way of copying and length that was swapped in.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `analysis.load.load`.
    """
    rows = frame[frame["recovery"] == "resume"]
    computed = {
        (subject, tokens): case
        for subject, _, _, group in groups(rows[rows["policy"] == "recompute"])
        for tokens, case in cases(group, "seq_len")
    }
    return [
        _resumed(subject, way, int(tokens), case, computed.get((subject, tokens)))
        for subject, way, _, group in groups(rows[rows["policy"] == "swap"])
        if way is not None
        for tokens, case in cases(group, "seq_len")
    ]


def _resumed(subject: Subject, way: Way, tokens: int, case: pd.DataFrame, other: pd.DataFrame | None) -> Resumed:
    swap, recompute = seconds(case), None if other is None else seconds(other)
    suspect = is_suspect(case) or (other is not None and is_suspect(other))
    ratio = recompute / swap if recompute else None
    return Resumed(subject, way, tokens, swap, fact(case, "step_alone_s"), recompute, ratio, suspect)


def _repeated(count: int, case: pd.DataFrame) -> Repeated:
    lengths, out, back = (tuple(fact(case, name) or ()) for name in ("lengths", "bytes_out", "bytes_in"))
    return Repeated(count, seconds(case), lengths, out, back, is_suspect(case))


def _slope(points: tuple[Repeated, ...]) -> Estimate | None:
    """Least squares over the numbers of preemptions, of the medians and of each resample."""
    if len(points) < 2:
        return None
    x = np.array([point.preemptions for point in points], dtype=float)
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    draws = joint([point.time for point in points])
    value = float(weights @ [point.time.value for point in points])
    return Estimate(value, None if draws is None else draws @ weights)


def _place(one: Preemptions) -> tuple[object, ...]:
    return one.subject, one.way, one.seq_len, one.growth_tokens
