"""The same cases on two machines, or before and after a change: ratio of medians with its bootstrap interval.

Cases are joined on the case itself. A ratio above 1 is slower than the base. Swaps and copies whose bytes were not
compared have no number here.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.contract import NothingToDraw
from analysis.grid import Grid, number, values
from analysis.intervals import Estimate, median

SAME = 1.05  # ratios within 1/1.05 .. 1.05 are called the same: hosts of one kind differ by that much from day to day
VERDICTS = ("faster", "slower", "same", "ambiguous")
MS = 1e3


@dataclass(frozen=True, eq=False)
class Compared:
    """One case in two groups.

    Attributes
    ----------
    case : str
        In words.
    base_s, other_s : Estimate
        Medians of the wall clock, seconds.
    suspect : bool
        Whether a row on either side is.
    """

    case_id: str
    case: str
    recovery: str
    base: str
    other: str
    base_s: Estimate
    other_s: Estimate
    suspect: bool

    @property
    def ratio(self) -> Estimate:
        """Other / base: above 1 slower."""
        return self.other_s / self.base_s

    @property
    def verdict(self) -> str:
        """faster, slower: the whole interval on that side of 1. same: all of it within `SAME`. Else ambiguous."""
        ends = self.ratio.interval
        if ends is None:
            return "ambiguous"
        if ends.low >= 1 / SAME and ends.high <= SAME:
            return "same"
        return "slower" if ends.low > 1 else "faster" if ends.high < 1 else "ambiguous"

    def fails(self, limit: float) -> bool:
        """Slower beyond doubt, and by more than `limit`."""
        return self.verdict == "slower" and self.ratio.value > limit


@dataclass(frozen=True, eq=False)
class Comparison:
    """All pairs of cases against one base, and notes on what was left out."""

    base: str
    pairs: tuple[Compared, ...]
    notes: tuple[str, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """The groups beside the base."""
        return tuple(dict.fromkeys(pair.other for pair in self.pairs))


def compare_groups(frame: pd.DataFrame, base: str | None = None, with_cpu: bool = False) -> Comparison:
    """Every group (label, or hardware where there is no label) against `base`, the first one by default.

    Raises
    ------
    NothingToDraw
        With fewer than two groups, no group of that name, no case in common, or a CPU beside a GPU.
    """
    frame = frame[~frame["recovery"].isin(["swap", "copy"]) | frame["verified"].astype(bool)]
    names = [str(name) for name in frame["machine"].unique()]
    if len(names) < 2:
        raise NothingToDraw(
            f"one group only: {', '.join(names) or 'none'}; label the files, e.g. before=a.json after=b.json"
        )
    first = names[0] if base is None else base
    if first not in names:
        raise NothingToDraw(f"no group {first!r}; there are: {', '.join(names)}")
    _check_backends(frame, with_cpu)
    groups = {name: dict(iter(frame[frame["machine"] == name].groupby("case_id", sort=False))) for name in names}
    pairs, notes = [], []
    for other in (name for name in names if name != first):
        shared = [case for case in groups[first] if case in groups[other]]
        pairs += [_pair(groups[first][case], groups[other][case]) for case in shared]
        notes += _notes(first, groups[first], other, groups[other], len(shared))
    if not pairs:
        raise NothingToDraw(f"no case in common: {first} and {', '.join(name for name in names if name != first)}")
    return Comparison(first, tuple(pairs), tuple(notes))


def _check_backends(frame: pd.DataFrame, with_cpu: bool) -> None:
    cpus = frame.loc[frame["backend"] == "cpu", "machine"].unique()
    if len(cpus) and (frame["backend"] != "cpu").any() and not with_cpu:
        raise NothingToDraw(f"{', '.join(cpus)} is a CPU beside GPUs; --with-cpu compares them all the same")


def _pair(base: pd.DataFrame, other: pd.DataFrame) -> Compared:
    row = base.iloc[0]
    return Compared(
        str(row["case_id"]),
        case_text(row.to_dict()),
        str(row["recovery"]),
        str(row["machine"]),
        str(other["machine"].iloc[0]),
        _median(base),
        _median(other),
        any(bool(reasons) for rows in (base, other) for reasons in rows["suspect"]),
    )


def _median(rows: pd.DataFrame) -> Estimate:
    key = zlib.crc32("|".join((str(rows["machine"].iloc[0]), str(rows["case_id"].iloc[0]))).encode())
    return median(list(rows["wall_s"]), key=(key,))


def _notes(first: str, base: dict[Any, Any], other: str, theirs: dict[Any, Any], shared: int) -> list[str]:
    only = f"{len(base) - shared} cases of {first} and {len(theirs) - shared} of {other} have no counterpart"
    notes = [only] if len(base) + len(theirs) > 2 * shared else []
    groups = ((first, base), (other, theirs))
    sessions = {name: max(rows["session"].nunique() for rows in group.values()) for name, group in groups}
    if single := [name for name, count in sessions.items() if count == 1]:
        notes.append(f"{' and '.join(single)}: one session, so intervals hold no difference between processes")
    return notes


def case_text(row: dict[Any, Any]) -> str:
    """A case in words: what, how, on how many tokens."""
    if row["recovery"] == "copy":
        size = f"{row['fragments']:.0f} x {row['case_fragment_bytes']:,.0f} B"
        again = "again" if row.get("repeat") == 1 else None
        parts = ["copy", row["direction"], row["method"], row["placement"], size, again]
    else:
        swap = row["recovery"] == "swap"
        what = row["direction"] if swap else " ".join(filter(None, (row["recovery"], question_text(row))))
        direction = None if swap else row["direction"]
        where = [row["method"], _sized(row, "programs", "{} programs"), row["layout"], row["placement"]]
        tokens = _sized(row, "seq_len", "{} tokens")
        batch = f"x {row['batch']}" if not pd.isna(row["batch"]) and row["batch"] > 1 else None
        sizes = [_sized(row, "block_size", "block {}"), tokens, batch]
        parts = [what, direction, *where, *sizes, row["model"], row["dtype"], _layers(row)]
    return " ".join(str(part) for part in parts if not pd.isna(part))


def question_text(row: dict[Any, Any]) -> str:
    """What a case asks beside model, length and way of swapping, in words; empty for a plain swap or recompute."""
    context = _sized(row, "company_context", ", {} tokens each") or ""
    parts = [
        _sized(row, "probe", "{}"),
        _sized(row, "matrix", "{0} x {0}"),
        _sized(row, "memory_bytes", "{} B"),
        _sized(row, "policy", "by {}"),
        _sized(row, "chunk_tokens", "in chunks of {}"),
        _sized(row, "cached_tokens", "with {} cached"),
        _sized(row, "company_size", f"beside {row.get('company')} of {{}}{context}"),
        _sized(row, "preemptions", "{} times"),
        _sized(row, "growth_tokens", "growing by {}"),
        _sized(row, "fraction", "{} computed"),
        _sized(row, "timed", "{} timed"),
    ]
    return ", ".join(part for part in parts if part)


def _sized(row: dict[Any, Any], axis: str, words: str) -> str | None:
    """The axis in words; None where it does not apply, or the file is older than it."""
    value = row.get(axis)
    if pd.isna(value):
        return None
    return words.format(int(value) if isinstance(value, float) and value.is_integer() else value)


def _layers(row: dict[Any, Any]) -> str | None:
    timed, model = row["layers_timed"], row["layers_model"]
    return None if pd.isna(timed) or timed == model else f"{timed}/{model} layers"


def grid(found: Comparison, limit: float) -> list[Grid]:
    """A table for each other group, and the counts."""
    grids = []
    for other in found.others:
        pairs = [pair for pair in found.pairs if pair.other == other]
        columns = ("case", f"{found.base}, ms", f"{other}, ms", "ratio", "verdict")
        rows = tuple(
            (
                pair.case + ("*" if pair.suspect else ""),
                number(pair.base_s, MS),
                number(pair.other_s, MS),
                number(pair.ratio),
                pair.verdict + (f"\npast {limit:g}" if pair.fails(limit) else ""),
            )
            for pair in pairs
        )
        notes = tuple(_counts(pairs)) + (("* suspect on either side",) if any(p.suspect for p in pairs) else ())
        title = f"{other} against {found.base}: medians of the wall clock, ratio {other} / {found.base}"
        grids.append(Grid(title, columns, rows, notes, numbers=columns[1:4]))
    return grids


def _counts(pairs: Sequence[Compared]) -> list[str]:
    """Verdicts and geometric mean of the ratios by recovery."""
    lines = []
    for recovery in dict.fromkeys(pair.recovery for pair in pairs):
        mine = [pair for pair in pairs if pair.recovery == recovery]
        counts = Counter(pair.verdict for pair in mine)
        mean = math.exp(sum(math.log(pair.ratio.value) for pair in mine) / len(mine))
        words = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
        lines.append(f"{recovery}: {words} of {len(mine)}; geometric mean of the ratios {mean:.3f}")
    return lines


def comparison_values(found: Comparison, limit: float) -> list[dict[str, Any]]:
    """Every pair as plain values."""
    return [
        {
            **{name: getattr(pair, name) for name in ("case_id", "case", "recovery", "base", "other", "suspect")},
            "base_s": values(pair.base_s),
            "other_s": values(pair.other_s),
            "ratio": values(pair.ratio),
            "verdict": pair.verdict,
            "fails": pair.fails(limit),
        }
        for pair in found.pairs
    ]
