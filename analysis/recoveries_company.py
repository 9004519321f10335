"""Recoveries that are not alone: what a sequence adds to a step it joins, and how much a swap and a step slow down."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis.intervals import Estimate
from analysis.recovery_rows import (
    Reached,
    Subject,
    Way,
    added,
    alone,
    cases,
    groups,
    is_suspect,
    plain,
    reach,
    seconds,
    slowdown,
)

FREE = 0.05  # of a decode step: tokens that add no more ride free
UNDISTURBED = Estimate(1.0)
COMPANY_AXES = ("company", "company_size", "company_context")


@dataclass(frozen=True)
class Company:
    """What runs in the same step, or beside: a prefill of `size` tokens, or a decode step of `size` sequences.

    Each decoding sequence has `context` tokens cached.
    """

    kind: str
    size: int
    context: int | None

    @property
    def text(self) -> str:
        """In words."""
        if self.kind == "prefill":
            return f"prefill of {self.size:,} tokens"
        sequences = "1 sequence" if self.size == 1 else f"{self.size:,} sequences"
        return f"decode step of {sequences} with {self.context:,} tokens each"


@dataclass(frozen=True, eq=False)
class Joined:
    """One sequence that comes back in company.

    Attributes
    ----------
    tokens : int
        Tokens that come back, of the whole batch.
    with_it, without : Estimate
        Seconds of the step with the sequence, and of the step alone.
    added : Estimate
        Median over rounds of their difference, seconds: rounds with and without ran turn about.
    alone : Estimate or None
        Seconds of the same recovery without company; None where it was not timed.
    share : Estimate or None
        added / alone.
    """

    tokens: int
    with_it: Estimate
    without: Estimate
    added: Estimate
    alone: Estimate | None
    share: Estimate | None
    suspect: bool


@dataclass(frozen=True, eq=False)
class Batching:
    """Sequences of several lengths that join one company.

    Attributes
    ----------
    policy : str
        "recompute" or "swap"; `way` is None for recompute.
    joined : tuple of Joined
        Tokens ascending.
    free : Reached or None
        With a decode step: tokens up to which the time added is at most `FREE` of the step's. Linear between what was
        timed, from no token and no time on.
    """

    subject: Subject
    policy: str
    way: Way | None
    company: Company
    joined: tuple[Joined, ...]
    free: Reached | None


@dataclass(frozen=True, eq=False)
class Interference:
    """One of a swap and a step, timed while the other runs beside all the time.

    Attributes
    ----------
    timed : str
        "company" (the step) or "swap".
    seq_len : int
        Tokens that are swapped.
    beside, alone : Estimate
        Seconds of the timed one with and without the other.
    factor : Estimate
        Median over rounds of beside / alone; 1 is undisturbed.
    lost : Estimate or None
        Seconds that the timed one lost for each second of the other's work done meanwhile. 0: the other was free;
        1: they took turns. None where it is not known what was done.
    """

    subject: Subject
    way: Way
    direction: str
    company: Company
    timed: str
    seq_len: int
    beside: Estimate
    alone: Estimate
    factor: Estimate
    lost: Estimate | None
    suspect: bool


def batching(frame: pd.DataFrame) -> list[Batching]:
    """One `Batching` a machine, model, policy, way of copying and company.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `analysis.load.load`.
    """
    found = []
    for subject, way, axes, group in groups(frame[frame["recovery"] == "batching"], "policy"):
        singly = {int(tokens): seconds(case) for tokens, case in cases(group[group["company"].isna()], "seq_len")}
        for company, rows in _companies(group):
            joined = tuple(_joined(case, singly.get(int(n))) for n, case in cases(rows, "seq_len"))
            free = _free(joined, rows) if company.kind == "decode" else None
            found.append(Batching(subject, axes["policy"], way, company, joined, free))
    return found


def interference(frame: pd.DataFrame) -> list[Interference]:
    """One `Interference` a case.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `analysis.load.load`.
    """
    rows = frame[frame["recovery"] == "interference"]
    found = []
    for subject, way, axes, group in groups(rows, "direction", "timed"):
        if way is None:
            continue
        for company, mine in _companies(group):
            for tokens, case in cases(mine, "seq_len"):
                times = seconds(case), alone(case), slowdown(case), _lost(case)
                place = subject, way, axes["direction"], company, axes["timed"], int(tokens)
                found.append(Interference(*place, *times, is_suspect(case)))
    return found


def _companies(rows: pd.DataFrame) -> list[tuple[Company, pd.DataFrame]]:
    beside = rows[rows["company"].notna()]
    grouped = beside.groupby(list(COMPANY_AXES), dropna=False)
    return [(Company(*(plain(value) for value in key)), group) for key, group in grouped]


def _joined(case: pd.DataFrame, singly: Estimate | None) -> Joined:
    first, more = case.iloc[0], added(case)
    return Joined(
        int(first["seq_len"]) * int(first["batch"]),
        seconds(case),
        alone(case),
        more,
        singly,
        more / singly if singly else None,
        is_suspect(case),
    )


def _free(joined: tuple[Joined, ...], rows: pd.DataFrame) -> Reached:
    factors = [slowdown(case) for _, case in cases(rows, "seq_len")]
    return reach([0, *(one.tokens for one in joined)], [UNDISTURBED, *factors], Estimate(1 + FREE))


def _lost(case: pd.DataFrame) -> Estimate | None:
    """Runs of the other that were begun in a round may end behind it, so no more counts than the rounds lasted."""
    known = case[case["beside_runs"].notna() & case["beside_alone_s"].notna()]
    begun_s = known["beside_runs"] * known["beside_alone_s"]
    done_s = float(sum(min(s, wall.sum()) for s, wall in zip(begun_s, known["wall_s"], strict=True)))
    return added(case) * (float(known["rounds"].sum()) / done_s) if done_s > 0 else None
