"""The claims table for the terminal, and the same as plain values for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.claim_types import Answer, Verdict
from analysis.tables import digits

STYLES = {Answer.CONFIRMED: "green", Answer.REFUTED: "red", Answer.DEPENDS: "yellow", Answer.NOT_TESTED: "dim"}


def claims_table(verdicts: Sequence[Verdict]) -> RenderableType:
    """One block a claim: its words and source, then a line for each verdict; fits 100 columns."""
    blocks: list[RenderableType] = []
    for claim in dict.fromkeys(verdict.claim for verdict in verdicts):
        said = f"claimed: {claim.claimed} {claim.unit}".rstrip()
        blocks += [Text(f"{claim.id}: {claim.words}", style="bold"), Text(f"  {claim.source}; {said}")]
        blocks.append(_lines([verdict for verdict in verdicts if verdict.claim is claim]))
    return Group(*blocks, Text(summary(verdicts)))


def _lines(verdicts: Sequence[Verdict]) -> Table:
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(min_width=15, no_wrap=True)
    table.add_column(justify="right", max_width=22, overflow="fold")
    table.add_column(max_width=56, overflow="fold")
    for verdict in verdicts:
        of = " / ".join(filter(None, (verdict.origin if verdict.origin != "none" else "", verdict.machine)))
        because = Text(verdict.because + (f"\n{of}" if of else ""))
        table.add_row(Text(verdict.verdict, style=STYLES[verdict.verdict]), _number(verdict), because)
    return table


def _number(verdict: Verdict) -> str:
    if verdict.found is None:
        return "-"
    ends = f"\n{digits(verdict.interval.low)}-{digits(verdict.interval.high)}" if verdict.interval else ""
    return f"{digits(verdict.found)} {verdict.unit}".rstrip() + ends


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many claims and verdicts there are, by answer."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    claims = len({verdict.claim.id for verdict in verdicts})
    return f"{claims} claims: " + ", ".join(
        f"{counts[answer]} verdicts {answer}" for answer in Answer if counts[answer]
    )


def claims_values(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Each verdict as plain values; `interval` is [low, high] or null, `found` a number in `unit` or null."""
    return [_values(verdict) for verdict in verdicts]


def _values(verdict: Verdict) -> dict[str, Any]:
    claim = verdict.claim
    return {
        "claim": claim.id,
        "words": claim.words,
        "source": claim.source,
        "test": claim.test,
        "needs": [need.text for need in claim.needs],
        "verdict": str(verdict.verdict),
        "claimed": verdict.claimed,
        "found": None if verdict.found is None else float(verdict.found),
        "unit": verdict.unit,
        "interval": None if verdict.interval is None else [float(end) for end in verdict.interval],
        "origin": verdict.origin,
        "machine": verdict.machine,
        "where": verdict.where,
        "because": verdict.because,
    }
