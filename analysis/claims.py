"""Every claim against everything known: arithmetic, published rows, and each GPU machine's own rows.

A claim that no evidence reaches is NOT TESTED HERE, with the missing cases by name; so it is on a machine that lacks
them. Rows of a CPU judge nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis.claim_types import Answer, Claim, Need, Verdict
from analysis.claims_article import ARTICLE_CLAIMS
from analysis.claims_paper import PAPER_CLAIMS
from analysis.claims_versions import VERSION_CLAIMS
from analysis.measured import Machine, machines

__all__ = ["CLAIMS", "Answer", "Claim", "Need", "Verdict", "judge"]

CLAIMS: tuple[Claim, ...] = (*ARTICLE_CLAIMS, *PAPER_CLAIMS, *VERSION_CLAIMS)


def judge(measured: pd.DataFrame | None, published: pd.DataFrame, claims: Iterable[Claim] = CLAIMS) -> list[Verdict]:
    """Judge every claim (or those given).

    Parameters
    ----------
    measured : pandas.DataFrame or None
        As `analysis.load.load` returns it.
    published : pandas.DataFrame
        As `analysis.published.load_published` returns it.

    Returns
    -------
    list of Verdict
        In order of the claims; for each first arithmetic and published evidence, then the machines. One at least.
    """
    found = machines(measured)
    return [verdict for claim in claims for verdict in _judge(claim, found, published)]


def _judge(claim: Claim, found: list[Machine], published: pd.DataFrame) -> list[Verdict]:
    verdicts = claim.on_record(claim, published) if claim.on_record else []
    if claim.needs:
        verdicts += [verdict for machine in found for verdict in _on_machine(claim, machine)]
    return verdicts or [claim.not_tested(_missing(claim.needs))]


def _on_machine(claim: Claim, machine: Machine) -> list[Verdict]:
    """The machine's verdicts, or that its cases are missing."""
    missing = tuple(need for need in claim.needs if not need.met_by(machine))
    if claim.on_machine is None or missing:
        return [claim.not_tested(_missing(missing or claim.needs), machine.name)]
    unpaired = f"{_missing(claim.needs)} The rows here do not share a model, dtype, length and batch, or lack a part."
    return claim.on_machine(claim, machine) or [claim.not_tested(unpaired, machine.name)]


def _missing(needs: tuple[Need, ...]) -> str:
    return f"Missing: {'; '.join(need.text for need in needs)}."
