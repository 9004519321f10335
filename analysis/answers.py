"""Swap or recompute: the answer in a few sentences for each machine and model, and what to doubt in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.basis import Basis
from analysis.crossings import Crossover, crossover_measured
from analysis.crossover import crossover_tokens
from analysis.figure19 import Panel, Point
from analysis.grid import plain
from analysis.intervals import Estimate
from analysis.tables import CPU_WARNING, MS
from analysis.ties import in_words, place

USUAL_TOKENS = 4096  # the length that is told where it was measured, else the longest
USUAL_PLACEMENT = "scattered"  # where a server's allocator puts blocks after a while
COMPARED = ("swap", "recompute")


@dataclass(frozen=True)
class Answer:
    """One machine and model.

    Attributes
    ----------
    about : str
        Machine, model, dtype, and the batch if it is more than one sequence.
    text : str
        The answer: which wins, and by how much.
    notes : tuple of str
        The slowest way of swapping, other lengths, and doubts: a CPU, scaled layers, suspect rows, an interval that
        spans a tie.
    """

    about: str
    text: str
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """As plain text: the answer, then a line a note."""
        return [f"{self.about}: {self.text}", *(f"  {note}" for note in self.notes)]

    def markdown(self) -> str:
        """As an item of a list, its notes below it."""
        notes = (f"\n  - {plain(note)}" for note in self.notes)
        return f"- **{plain(self.about)}**: {plain(self.text)}{''.join(notes)}"


def answers(frame: pd.DataFrame, left: pd.DataFrame, panels: Sequence[Panel], bases: Sequence[Basis]) -> list[Answer]:
    """An answer for each machine, model, dtype and batch with rows of swap or recompute; compared GPUs first.

    Parameters
    ----------
    frame, left : pandas.DataFrame
        As `analysis.load.load` and `load_unmeasured` return them.
    panels, bases : list
        Of `figure19.panels` for every way of swapping, and `basis.bases_of` them.
    """
    groups: dict[tuple[str, str, str, int], list[Panel]] = {}
    for panel in panels:
        groups.setdefault((panel.machine, panel.model, panel.dtype, panel.batch), []).append(panel)
    compared = sorted(groups.values(), key=lambda group: group[0].backend == "cpu")
    rows = frame[frame["recovery"].isin(COMPARED)].groupby(["machine", "model", "dtype", "batch"])
    alone = [group for key, group in rows if key not in groups]
    return [*(_compared(group, bases) for group in compared), *(_alone(group, left, bool(panels)) for group in alone)]


@dataclass(frozen=True, eq=False)
class _Way:
    """The fastest round trip of one panel: a clean point if there is one."""

    panel: Panel
    point: Point
    swap: Estimate

    @property
    def text(self) -> str:
        return f"{self.panel.method}, {self.panel.layout}"

    @property
    def suspect(self) -> bool:
        return "swap_in_out" in self.point.suspect


def _compared(group: list[Panel], bases: Sequence[Basis]) -> Answer:
    lengths = {panel.seq_len for panel in group}
    tokens = USUAL_TOKENS if USUAL_TOKENS in lengths else max(lengths)
    there = [panel for panel in group if panel.seq_len == tokens]
    usual = [panel for panel in there if panel.placement == USUAL_PLACEMENT] or there
    ways = sorted(map(_fastest, usual), key=lambda way: (way.suspect, way.swap.value))
    best, slowest = ways[0], ways[-1]
    basis = next(basis for basis in bases if best.panel in basis.panels)
    about = _about(best.panel.name, best.panel.model, best.panel.dtype, best.panel.batch)
    notes = [f"With {slowest.text}, the slowest way, {_over_blocks(slowest.panel)}."] if slowest is not best else []
    return Answer(about, _headline(best), (*notes, *_over_lengths(basis, best.point.block_size), *_doubts(best)))


def _fastest(panel: Panel) -> _Way:
    known = [_Way(panel, point, swap) for point in panel.points if (swap := point.swap_in_out)]
    return min(known, key=lambda way: (way.suspect, way.swap.value))


def _headline(best: _Way) -> str:
    swap, recompute = best.swap, best.point.recompute
    faster, factor = ("swap", recompute / swap) if recompute.value > swap.value else ("recompute", swap / recompute)
    return (
        f"At {best.panel.seq_len:,} tokens {_over_blocks(best.panel)} with {best.text}, the best way of swapping: "
        f"{_told(swap, MS)} ms out and in with {best.panel.placement} blocks of {best.point.block_size} against "
        f"{_told(recompute, MS)} ms for recompute, so {faster} is {_told(factor)} times as fast."
    )


def _over_blocks(panel: Panel) -> str:
    points = [(float(p.block_size), swap, p.recompute) for p in panel.points if (swap := p.swap_in_out)]
    if len(points) > 1:
        return _decision(crossover_measured(points, "tokens"), "block size", "")
    [(size, swap, recompute)] = points
    return f"{'swap' if swap.value < recompute.value else 'recompute'} wins with blocks of {size:g}"


def _about(machine: str, model: str, dtype: str, batch: int) -> str:
    return f"{machine}: {model}, {dtype}" + (f", {batch} sequences" if batch > 1 else "")


def _over_lengths(basis: Basis, block_size: int) -> Iterator[str]:
    """Within the lengths measured, if there are two or more."""
    measured = [(float(tokens), basis.measured(tokens, block_size, "round-trip")) for tokens in basis.lengths]
    points = [(tokens, *pair) for tokens, pair in measured if pair]
    if len(points) < 2:
        return
    if basis.setting:
        found = crossover_tokens(basis.setting, block_size, points[0][0], points[-1][0])
    else:
        found = crossover_measured(points, "tokens")
    yield f"With the best way and blocks of {block_size}, {_decision(found, 'length', ' tokens')}."


def _decision(found: Crossover, axis: str, unit: str) -> str:
    """Which wins where along an axis."""
    if not found.crossings:
        wins = "both cost the same" if found.always == "equal" else f"{found.always} wins"
        return f"{wins} at every {axis} from {found.low:,g} to {found.high:,g}{unit}"
    first = found.crossings[0]
    if len(found.crossings) > 1 or "unknown" in (first.cheaper_below, first.cheaper_above):
        return f"it depends on the {axis}: {in_words(found)}{unit}"
    return f"{first.cheaper_above} wins above a {axis} of {place(first)}{unit}, {first.cheaper_below} below"


def _doubts(way: _Way) -> Iterator[str]:
    panel, point = way.panel, way.point
    if panel.backend == "cpu":
        yield f"{CPU_WARNING}: it says nothing about a GPU"
    yield from panel.scaled_lines
    for series in ("recompute", "swap_out", "swap_in"):
        if series in point.suspect:
            yield f"suspect, {series}: {'; '.join(panel.suspect[series])}"
    if not way.suspect and any("swap_in_out" in other.suspect for other in panel.points):
        yield "suspect rows were no candidates for the best way"
    interval = (point.recompute / way.swap).interval
    if interval and interval.low <= 1 <= interval.high:
        yield "neither is clearly the faster: the interval of their ratio spans 1"


def _alone(rows: pd.DataFrame, left: pd.DataFrame, others_compared: bool) -> Answer:
    """Rows of swap or recompute that nothing is compared with, and why."""
    first = rows.iloc[0]
    machine = first["hardware"] if first["machine"] == first["hardware"] else f"{first['machine']}: {first['hardware']}"
    about = _about(machine, first["model"], first["dtype"], first["batch"])
    missing = [name for name in COMPARED if name not in set(rows["recovery"])]
    if missing:
        why = f"no {missing[0]} rows{_reason(left, first, missing[0])}"
    elif first["backend"] == "cpu" and others_compared:
        why = "a CPU is left out beside GPUs; --with-cpu shows it"
    else:
        why = "no swap out and in of a length that was recomputed too"
    return Answer(about, f"no comparison: {why}.")


def _reason(left: pd.DataFrame, row: pd.Series, recovery: str) -> str:
    """Why the first such case left no number, if one was tried."""
    same = (left["machine"] == row["machine"]) & (left["model"] == row["model"]) & (left["recovery"] == recovery)
    tried = left[same]
    return "" if tried.empty else f" ({tried.iloc[0]['kind']}: {tried.iloc[0]['reason']})"


def _told(estimate: Estimate, unit: float = 1.0) -> str:
    ends = estimate.interval
    between = f" [{_three(ends.low * unit)} to {_three(ends.high * unit)}]" if ends else ""
    return _three(estimate.value * unit) + between


def _three(number: float) -> str:
    """Three digits are enough for a sentence; the tables have more."""
    return f"{number:,.0f}" if number >= 100 else f"{number:#.3g}".rstrip(".")
