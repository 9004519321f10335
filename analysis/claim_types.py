"""What a claim is, what it needs, and what is said of it. The claims are in `claims_article`, `claims_paper` ...

A claim is data: its words, its source, the cases that would test it, and two functions. `on_record` judges it by
arithmetic and by published rows; `on_machine` by what one machine measured. Neither knows what the project expects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pandas as pd

from analysis.intervals import Estimate, Interval
from analysis.measured import Machine


class Answer(StrEnum):
    """What the evidence says of a claim."""

    CONFIRMED = "CONFIRMED"
    REFUTED = "REFUTED"
    DEPENDS = "DEPENDS"
    NOT_TESTED = "NOT TESTED HERE"


@dataclass(frozen=True, eq=False)
class Need:
    """Rows that a claim cannot do without.

    Attributes
    ----------
    sweep : str
        What produces them: a sweep file and its table, or something that this suite does not have.
    recovery : str
        "swap", "recompute", or another recovery.
    axes : mapping of str to tuple
        Axis of the case, and the values of which any one will do.
    several : tuple of str
        Axes on which the rows must take two values or more.
    note : str
        What the axes cannot say.
    or_else : Need or None
        Other rows that do as well.
    """

    sweep: str
    recovery: str
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    several: tuple[str, ...] = ()
    note: str = ""
    or_else: Need | None = None

    @property
    def text(self) -> str:
        """The cases in words: sweep, recovery, axes."""
        parts = [f"{axis}={'|'.join(map(str, values))}" for axis, values in self.axes.items()]
        parts += [f"two or more of {axis}" for axis in self.several]
        parts += [self.note] if self.note else []
        axes = f" [{', '.join(parts)}]" if parts else ""
        text = f"{self.recovery}{axes} of {self.sweep}"
        return f"{text}, or {self.or_else.text}" if self.or_else else text

    def met_by(self, machine: Machine) -> bool:
        """Whether the machine measured such cases."""
        return self._met_by(machine) or (self.or_else is not None and self.or_else.met_by(machine))

    def _met_by(self, machine: Machine) -> bool:
        chosen = machine.cases(self.recovery)
        for axis, values in self.axes.items():
            chosen = chosen[chosen[axis].isin(list(values))] if axis in chosen else chosen.iloc[:0]
        if any(axis not in chosen or chosen[axis].nunique() < 2 for axis in self.several):
            return False
        return not chosen.empty


@dataclass(frozen=True)
class Verdict:
    """What one piece of evidence says of one claim.

    Attributes
    ----------
    claim : Claim
    verdict : Answer
    claimed, unit : str
        What the claim says, in `unit`; empty where it names no number.
    found : float or None
        The number beside it, in `unit`.
    interval : Interval or None
        95 % bootstrap interval where measured; lowest and highest over rows or cases otherwise.
    origin : str
        "arithmetic", "published (source)", "measured (machine)" or "modelled (from what)".
    machine : str
        Empty where the statement is about no machine.
    where : str
        The cases it was judged on.
    because : str
        One sentence.
    """

    claim: Claim
    verdict: Answer
    claimed: str
    found: float | None
    unit: str
    interval: Interval | None
    origin: str
    machine: str
    where: str
    because: str


@dataclass(frozen=True, eq=False)
class Claim:
    """One quantitative statement.

    Attributes
    ----------
    id : str
        Unique.
    words : str
        A short paraphrase, or a quotation in quotation marks.
    source : str
        Who says so, and where.
    claimed, unit : str
        The number, with its relation.
    test : str
        What would test it.
    needs : tuple of Need
        Cases that a machine must have measured.
    on_record : callable or None
        Judges by arithmetic and published rows.
    on_machine : callable or None
        Judges by one machine's rows; None while the suite has no such cases.
    """

    id: str
    words: str
    source: str
    claimed: str
    unit: str
    test: str
    needs: tuple[Need, ...] = ()
    on_record: Callable[[Claim, pd.DataFrame], list[Verdict]] | None = None
    on_machine: Callable[[Claim, Machine], list[Verdict]] | None = None

    def says(
        self,
        verdict: Answer,
        because: str,
        *,
        found: float | Estimate | None = None,
        interval: Interval | None = None,
        claimed: str | None = None,
        unit: str | None = None,
        origin: str,
        machine: str = "",
        where: str = "",
    ) -> Verdict:
        """A verdict on this claim; an `Estimate` brings its own interval."""
        estimate = found if isinstance(found, Estimate) else None
        interval = estimate.interval if estimate and interval is None else interval
        return Verdict(
            claim=self,
            verdict=verdict,
            claimed=self.claimed if claimed is None else claimed,
            found=found.value if isinstance(found, Estimate) else found,
            unit=self.unit if unit is None else unit,
            interval=interval,
            origin=origin,
            machine=machine,
            where=where,
            because=because,
        )

    def not_tested(self, because: str, machine: str = "") -> Verdict:
        """The verdict where evidence is missing: the sentence names it."""
        return self.says(Answer.NOT_TESTED, because, origin="none", machine=machine)


def answer(outcomes: list[bool | None]) -> Answer:
    """All hold: CONFIRMED; none holds: REFUTED; a mixture, or any that is undecided (None): DEPENDS."""
    if not outcomes:
        raise ValueError("no outcome to answer from; at least one is needed")
    if all(outcome is True for outcome in outcomes):
        return Answer.CONFIRMED
    return Answer.REFUTED if all(outcome is False for outcome in outcomes) else Answer.DEPENDS
