"""The report of result files as Markdown: the answers, every table, and the pictures by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.answers import Answer
from analysis.basis import TRIPS, Basis
from analysis.claim_types import Verdict
from analysis.contract import ResultFile
from analysis.figure19 import Panel
from analysis.grid import Grid, number, plain
from analysis.method import METHOD
from analysis.paper import readings, verdict
from analysis.questions import QUESTIONS, sheets
from analysis.tables import MS, digits
from analysis.tables_claims import summary
from analysis.tables_crossover import heading, regret_grid, regrets, tie_grids
from analysis.tables_rows import machines_grid, rates_grid, recompute_grid, suspect_grid, unmeasured_grid
from analysis.ties import ties

CPU_WARNING = "CPU, NOT A GPU FIGURE"


@dataclass
class Evidence:
    """What a report is made from.

    Attributes
    ----------
    files : sequence of ResultFile
    frame, left : pandas.DataFrame
        Rows, and cases without a number.
    panels, bases : list
        Empty where there is no pair of swap and recompute: `missing` says why.
    answers : list of Answer
        What stands on top.
    found : dict
        What `analysis.questions.answered` found.
    verdicts : list of Verdict
    pictures : dict
        File names by the section they stand in.
    notes : list of str
        What was left out, and why.
    arguments : str
        How the report was asked for.
    """

    files: Sequence[ResultFile]
    frame: pd.DataFrame
    left: pd.DataFrame
    arguments: str
    panels: list[Panel] = field(default_factory=list)
    bases: list[Basis] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    found: dict[str, Sequence[Any]] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    pictures: dict[str, list[str]] = field(default_factory=dict)
    missing: str = ""
    notes: list[str] = field(default_factory=list)


def markdown(evidence: Evidence) -> str:
    """The whole report."""
    parts = ["# Swap or recompute", *_opening(evidence)]
    for title, section in SECTIONS.items():
        said = [part for part in section(evidence) if part]
        parts += [f"## {title}", *said] if said else []
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(evidence: Evidence) -> Iterator[str]:
    yield "\n".join(answer.markdown() for answer in evidence.answers) or "No answer: no rows of swap or recompute."
    machines = [str(name) for name in evidence.frame["machine"].unique()]
    yield f"{len(evidence.frame)} cases of {len(machines)} machine(s): {plain('; '.join(machines))}."
    if (evidence.frame["backend"] == "cpu").any():
        yield f"> **{CPU_WARNING}**: rows of a CPU exercise the whole path and say nothing about a GPU."
    yield "Times are medians of the wall clock with their 95 % bootstrap interval."


def _machines(evidence: Evidence) -> Iterator[str]:
    yield machines_grid(evidence.files).markdown()


def _figure19(evidence: Evidence) -> Iterator[str]:
    yield from _pictures(evidence, "figure19")
    yield plain(evidence.missing)
    for panel in evidence.panels:
        yield panel_grid(panel).markdown()


def panel_grid(panel: Panel) -> Grid:
    """Figure 19's table of one panel, for Markdown."""
    columns = ("block", "swap out, ms", "swap in, ms", "swap in+out, ms", "recompute, ms", "recompute / swap in+out")
    rows = []
    for point in panel.points:
        series = ("swap_out", "swap_in", "swap_in_out", "recompute")
        cells = [number(getattr(point, name), MS, "*" if name in point.suspect else "") for name in series]
        rows.append((str(point.block_size), *cells, number(point.ratio)))
    marks = [f"* suspect, {series}: {reason}" for series, reasons in panel.suspect.items() for reason in reasons]
    paper = [
        f"{line.name} ({line.sentence}), recompute x {line.factor}: {'holds' if line.holds else 'does not hold'}, "
        f"largest ratio {digits(line.largest.value)} at block size {line.block_size}"
        for line in readings(panel)
    ]
    where = f"{panel.model}, {panel.dtype}, {panel.seq_len} tokens x {panel.batch}"
    title = f"{panel.name}; {where}; {panel.method}, {panel.layout}, {panel.placement} ({panel.origin})"
    crossing = f"crossing of recompute and swap in+out: {verdict(panel)}"
    notes = (crossing, *panel.scaled_lines, *marks, *paper)
    return Grid(title, columns, tuple(rows), notes, numbers=columns)


def _crossover(evidence: Evidence) -> Iterator[str]:
    yield from _pictures(evidence, "crossover")
    yield plain(evidence.missing)
    for basis in evidence.bases:
        table = regrets(basis, TRIPS)
        for grid in (heading(basis), *tie_grids(basis, ties(basis)), regret_grid(basis, table)):
            yield grid.markdown()


def _rates(evidence: Evidence) -> Iterator[str]:
    yield from _pictures(evidence, "rates")
    yield rates_grid(evidence.frame).markdown()


def _recompute(evidence: Evidence) -> Iterator[str]:
    yield from _pictures(evidence, "recompute", "generations")
    yield recompute_grid(evidence.frame).markdown()


def _between(evidence: Evidence) -> Iterator[str]:
    for name, tables in sheets(evidence.found).items():
        yield f"### {QUESTIONS[name].words}"
        yield from _pictures(evidence, name)
        for sheet in tables:
            yield sheet.grid().markdown()


def _claims(evidence: Evidence) -> Iterator[str]:
    yield summary(evidence.verdicts) + "."
    columns = ("claim", "verdict", "claimed", "found", "because", "origin")
    yield Grid("", columns, tuple(_claim(line) for line in evidence.verdicts)).markdown()


def _claim(line: Verdict) -> tuple[str, ...]:
    found = "-" if line.found is None else f"{digits(line.found)} {line.unit}".rstrip()
    if line.found is not None and line.interval is not None:
        found += f"\n{digits(line.interval.low)}-{digits(line.interval.high)}"
    origin = " / ".join(filter(None, (line.origin if line.origin != "none" else "", line.machine)))
    return line.claim.words, str(line.verdict), f"{line.claimed} {line.unit}".rstrip(), found, line.because, origin


def _left_out(evidence: Evidence) -> Iterator[str]:
    yield "**Skipped and failed cases**"
    yield unmeasured_grid(evidence.left).markdown()
    yield "**Suspect rows**"
    yield suspect_grid(evidence.frame).markdown()
    if evidence.notes:
        yield Grid("Notes", (), (), tuple(evidence.notes)).markdown()


def _made(evidence: Evidence) -> Iterator[str]:
    yield METHOD
    yield f"~~~\npython -m analysis report {evidence.arguments}\n~~~"
    rows = []
    for file in evidence.files:
        session = file.document["session"]
        git = file.document["machine_info"]["software"].get("git") or "?"
        command = "pytest " + " ".join(map(str, session["arguments"]))
        rows.append((file.path.name, session["id"], command, f"{session['seconds']:.0f}", str(session["seed"]), git))
    columns = ("file", "session", "command", "seconds", "seed", "commit")
    yield Grid("", columns, tuple(rows), numbers=("seconds",)).markdown()


def _pictures(evidence: Evidence, *names: str) -> Iterator[str]:
    for name in names:
        for path in evidence.pictures.get(name, []):
            yield f"![{PICTURES[name]}]({path})"


PICTURES = {
    "figure19": "Time of swap and of recompute over block size",
    "crossover": "Which of the two is faster over length and block size",
    "rates": "GB/s of copies over the bytes of one copy",
    "recompute": "Time and MFU of recompute over length",
    "generations": "Swap and recompute over length, by hardware generation",
    **{name: question.words for name, question in QUESTIONS.items()},
}


SECTIONS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "Figure 19": _figure19,
    "Where swap and recompute tie": _crossover,
    "Copy rates": _rates,
    "Recompute": _recompute,
    "Between swap and recompute, and in company": _between,
    "Claims": _claims,
    "Machines": _machines,
    "Skipped, failed and suspect": _left_out,
    "How it was measured": _made,
}


def values(evidence: Evidence, path: Path) -> dict[str, Any]:
    """What was written, as plain values."""
    return {
        "report": str(path),
        "files": [str(path)],
        "rows": len(evidence.frame),
        "panels": len(evidence.panels),
        "settings": len(evidence.bases),
        "questions": list(evidence.found),
        "verdicts": len(evidence.verdicts),
        "notes": [note for note in (evidence.missing, *evidence.notes) if note],
    }
