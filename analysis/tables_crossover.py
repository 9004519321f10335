"""Ties and regrets of one basis as tables, for the terminal, the report and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.basis import Basis
from analysis.grid import Grid, merged
from analysis.rules import regret_table
from analysis.tables import digits
from analysis.ties import BATCH, BLOCK, LENGTH, LINK, PREEMPTIONS, Tie

TITLES = {
    LENGTH: "Length at which swap and recompute tie, in tokens",
    BLOCK: "Block size at which they tie for a length, in tokens",
    LINK: "Link rate at which they tie for a length, in GB/s a direction",
    PREEMPTIONS: "Number of preemptions of one sequence at which they tie",
    BATCH: "Number of sequences brought back together at which they tie",
}
COLUMNS = {
    LENGTH: ("block", "trip", "answer"),
    BLOCK: ("tokens", "trip", "answer"),
    LINK: ("tokens", "block", "trip", "answer"),
    PREEMPTIONS: ("tokens", "block", "trip", "host copy", "answer"),
    BATCH: ("tokens", "block", "trip", "answer"),
}
READING = "recompute < 20 [18 to 22] < swap: recompute is faster below 20, swap above; 95 % interval in brackets"
MERGED = ("block", "tokens", "trip", "host copy")  # in this order, where the answer is the same
FULL_RATE = "copies at the full rate of the link, no time a copy; a link below that rate is too slow for swap"


def heading(basis: Basis) -> Grid:
    """Which machine, and on what the answers rest."""
    rests = "constants fitted to " + ("published rows" if basis.origin == "published" else "the rows")
    if basis.setting is None:
        rests = f"medians as measured, straight lines between them; no constants: {basis.refusal}"
    suspect = {reason for panel in basis.panels for reasons in panel.suspect.values() for reason in reasons}
    scaled = dict.fromkeys(line for panel in basis.panels for line in panel.scaled_lines)
    notes = (basis.what, f"from {rests}", READING, *scaled, *(f"suspect rows: {reason}" for reason in sorted(suspect)))
    return Grid(basis.name, (), (), notes)


def tie_grids(basis: Basis, found: Sequence[Tie]) -> list[Grid]:
    """A table a question, ties in order; questions without an answer are left out."""
    grids = []
    for question, title in TITLES.items():
        chosen = [tie for tie in found if tie.question == question]
        if not chosen:
            continue
        columns = COLUMNS[question]
        if question == LINK and basis.setting is None:
            columns = tuple(name for name in columns if name != "block")
        cells = [tuple(_cell(tie, name) for name in columns) for tie in chosen]
        rows = merged(cells, columns, [name for name in MERGED if name in columns])
        notes = dict.fromkeys(note for tie in chosen if tie.found for note in tie.found.notes)
        asked = dict.fromkeys(f"asked from {tie.found.low:g} to {tie.found.high:.6g}" for tie in chosen if tie.found)
        full_rate = (FULL_RATE,) if question == LINK and basis.setting is None else ()
        asked = {} if full_rate else asked
        beyond = tuple(f"beyond the data: {note}" for note in notes)
        grids.append(Grid(title, columns, rows, tuple(asked) + full_rate + beyond))
    return grids


def _cell(tie: Tie, column: str) -> str:
    if column == "answer":
        return tie.text
    if column == "host copy":
        return "kept" if tie.kept else "freed"
    number = {"tokens": tie.tokens, "block": tie.block_size}
    return tie.trip if column == "trip" else str(number[column])


def regrets(basis: Basis, trips: Sequence[str]) -> pd.DataFrame:
    """The regret table of every trip; empty without constants."""
    settings = [setting for trip in trips if (setting := basis.on_trip(trip))]
    tables = [regret_table(setting, basis.lengths, basis.block_sizes) for setting in settings]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def regret_grid(basis: Basis, table: pd.DataFrame) -> Grid:
    """What other systems' rules would choose here, and what that costs beyond the better choice."""
    title = "What rules of other systems would choose here"
    if table.empty:
        return Grid(title, (), (), (f"no table: the rules need constants ({basis.refusal})",))
    columns = ("tokens", "block", "trip", "swap, ms", "recompute, ms", *table["rule"].unique())
    rows = []
    for (tokens, size, trip), group in table.groupby(["tokens", "block_size", "trip"], sort=False):
        first = group.iloc[0]
        choices = [_choice(str(row["choice"]), float(row["regret_ms"])) for row in group.to_dict("records")]
        times = (digits(first["swap_ms"]), digits(first["recompute_ms"]))
        rows.append((f"{tokens:,}", f"{size:,}", str(trip).replace(" ", "-"), *times, *choices))
    notes = ("+: milliseconds lost against the better of the two",)
    return Grid(title, columns, tuple(rows), notes, numbers=columns[:2] + columns[3:5])


def _choice(choice: str, regret_ms: float) -> str:
    return choice if regret_ms == 0 or math.isnan(regret_ms) else f"{choice}, +{digits(regret_ms)}"


def basis_values(basis: Basis, found: Sequence[Tie], table: pd.DataFrame) -> dict[str, Any]:
    """One basis as plain values."""
    names = ("machine", "hardware", "backend", "model", "dtype", "batch", "method", "layout", "placement", "origin")
    records = table.astype(object).where(table.notna(), None).to_dict("records")
    return {
        **{name: getattr(basis, name) for name in (*names, "source", "kind", "refusal")},
        "gpu_figure": basis.backend != "cpu",
        "ties": [tie.values() for tie in found],
        "regret": records,
    }
