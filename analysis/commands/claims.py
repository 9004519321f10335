"""`claims`: what others say of swap and recompute, judged by arithmetic, published rows and result files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from analysis.commands.common import Json, SomeFiles, one_line, print_json, show
from analysis.contract import NothingToDraw, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from analysis.claims import Claim, Verdict

CPU_NOTE = "CPU, NOT A GPU: rows of a CPU judge no claim"


def claims(
    files: SomeFiles = None,
    published: Annotated[bool, typer.Option(help="Judge by published measurements too.")] = True,
    claim: Annotated[list[str], typer.Option(help="Claim by its id; all by default.")] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Published claims: confirmed, refuted, depends, or not tested here, with the number."""
    from analysis.tables_claims import claims_table, claims_values

    with one_line():
        chosen = _chosen(claim)
        frame = _frame(files)
        verdicts = verdicts_of(frame, published, chosen)
    notes = cpu_notes(frame)
    if as_json:
        print_json({"verdicts": claims_values(verdicts), "notes": notes})
    else:
        show([claims_table(verdicts)], notes)


def verdicts_of(frame: pd.DataFrame | None, published: bool, claims: Sequence[Claim]) -> list[Verdict]:
    """Every claim judged; without `published`, only by arithmetic and by the machines of the frame."""
    from analysis.claims import judge
    from analysis.published import load_published

    verdicts = judge(frame, load_published(), claims)
    if published:
        return verdicts
    kept = [verdict for verdict in verdicts if not verdict.origin.startswith(("published", "modelled"))]
    judged = {verdict.claim.id for verdict in kept}
    left = [claim.not_tested("Published evidence was left out.") for claim in claims if claim.id not in judged]
    order = [claim.id for claim in claims]
    return sorted([*kept, *left], key=lambda verdict: order.index(verdict.claim.id))


def cpu_notes(frame: pd.DataFrame | None) -> list[str]:
    """A line for each CPU of the frame: it is no GPU."""
    if frame is None:
        return []
    cpus = frame.loc[frame["backend"] == "cpu", "machine"].unique()
    return [f"{CPU_NOTE} ({name})" for name in cpus]


def _chosen(ids: list[str]) -> Sequence[Claim]:
    from analysis.claims import CLAIMS

    known = {claim.id: claim for claim in CLAIMS}
    for name in ids:
        if name not in known:
            raise NothingToDraw(f"unknown claim {name!r}; known: {', '.join(known)}")
    return [known[name] for name in ids] or CLAIMS


def _frame(files: list[str] | None) -> pd.DataFrame | None:
    from analysis.load import rows

    return rows(read(files)) if files else None
