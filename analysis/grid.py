"""A table as plain text cells, for the terminal and for Markdown alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analysis.intervals import Estimate
from analysis.tables import digits

# An underscore within a word marks nothing.
MARKS = re.compile(r"[\\`*<>\[\]|&]|(?<!\w)_|_(?!\w)")


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes
    ----------
    title : str
        May be empty.
    columns : tuple of str
        Headings; those of `numbers` stand right-aligned.
    rows : tuple of tuple of str
        As many cells as columns.
    notes : tuple of str
        Lines below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    def terminal(self) -> RenderableType:
        """For rich: wraps within cells, never cuts."""
        parts: list[RenderableType] = [Text(self.title, style="bold")] if self.title else []
        if self.rows:
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for name in self.columns:
                table.add_column(name, justify="right" if name in self.numbers else "left", overflow="fold")
            for row in self.rows:
                table.add_row(*map(Text, row))
            parts.append(table)
        return Group(*parts, *(Padding(Text(note), (0, 0, 0, 2)) for note in self.notes))

    def markdown(self) -> str:
        """As a Markdown table under its title in bold, notes as a list."""
        parts = [f"**{plain(self.title)}**"] if self.title else []
        if self.rows:
            rule = ("---:" if name in self.numbers else "---" for name in self.columns)
            lines = [_line(self.columns), f"| {' | '.join(rule)} |", *map(_line, self.rows)]
            parts.append("\n".join(lines))
        if self.notes:
            parts.append("\n".join(f"- {_cell(note)}" for note in self.notes))
        return "\n\n".join(parts)

    def _repr_markdown_(self) -> str:
        """What a notebook shows."""
        return self.markdown()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return plain(text).replace("\n", "<br>")


def plain(text: str) -> str:
    """Text as Markdown that shows it as it is: marks that would be HTML, links, code or emphasis are escaped."""
    return MARKS.sub(r"\\\g<0>", text)


def merged(rows: Sequence[tuple[str, ...]], columns: Sequence[str], over: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Rows that differ in one column of `over` only, in one row with that column's cells joined by commas."""
    found = list(rows)
    for name in over:
        place = columns.index(name)
        groups: dict[tuple[str, ...], list[str]] = {}
        for row in found:
            groups.setdefault(row[:place] + row[place + 1 :], []).append(row[place])
        found = [(*rest[:place], ", ".join(dict.fromkeys(cells)), *rest[place:]) for rest, cells in groups.items()]
    return tuple(found)


def number(estimate: Estimate | None, unit: float = 1.0, mark: str = "") -> str:
    """Value times `unit`, and its interval on a second line if it has one."""
    if estimate is None:
        return "-"
    ends = estimate.interval
    between = "-" if ends is None or ends.low >= 0 else " to "
    low_high = "" if ends is None else f"\n{digits(ends.low * unit)}{between}{digits(ends.high * unit)}"
    return digits(estimate.value * unit) + mark + low_high


def values(estimate: Estimate | None, unit: float = 1.0) -> dict[str, object] | None:
    """The same for JSON: `value`, and `interval` as [low, high] or null."""
    if estimate is None:
        return None
    ends = estimate.interval
    return {"value": estimate.value * unit, "interval": None if ends is None else [end * unit for end in ends]}
