"""A table whose cells know their names: the same numbers on the terminal, in Markdown and in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from analysis.grid import Grid, number, values
from analysis.intervals import Estimate
from analysis.recovery_rows import Reached
from analysis.tables import digits


class Cell(NamedTuple):
    """One value.

    Attributes
    ----------
    heading, key : str
        What its column is called on a table, and in JSON. Both say the unit. Without a heading it is in JSON alone.
    value : Estimate, Reached, float, int, str or None
        None where it was not measured, or does not apply.
    unit : float
        What estimates and floats are multiplied by.
    suspect : bool
        A row it comes from has a reason to distrust it.
    """

    heading: str
    key: str
    value: Estimate | Reached | float | int | str | None
    unit: float = 1.0
    suspect: bool = False

    @property
    def text(self) -> str:
        """For a table: "-" for None, a star behind what is suspect."""
        match self.value:
            case None:
                return "-"
            case Estimate():
                return number(self.value, self.unit, "*" if self.suspect else "")
            case Reached(tokens=tokens, limit=limit):
                return f"{limit} {number(tokens)}".strip()
            case float():
                return digits(self.value * self.unit)
            case int():
                return f"{self.value:,}"
        return self.value

    @property
    def note(self) -> str:
        """For a line below a table."""
        value, *ends = self.text.split("\n")
        return f"{self.heading}: {value}{''.join(f' ({both})' for both in ends)}"

    @property
    def plain(self) -> Any:
        """For JSON: an estimate as its value and interval."""
        match self.value:
            case Estimate():
                return values(self.value, self.unit)
            case Reached(tokens=tokens, limit=limit):
                return (values(tokens) or {}) | {"limit": limit}
            case float():
                return self.value * self.unit
        return self.value


Line = tuple[Cell, ...]


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table.

    Attributes
    ----------
    title : str
        Whose rows they are.
    about : dict
        The same as plain values.
    lines : tuple of Line
        At least one; all of the same columns.
    facts : Line
        What is known of all lines together, a note each.
    """

    title: str
    about: dict[str, Any]
    lines: tuple[Line, ...]
    facts: Line = ()

    def grid(self) -> Grid:
        """For the terminal and Markdown."""
        shown = [[cell for cell in line if cell.heading] for line in self.lines]
        columns = tuple(cell.heading for cell in shown[0])
        words = {cell.heading for line in shown for cell in line if isinstance(cell.value, str)}
        rows = tuple(tuple(cell.text for cell in line) for line in shown)
        facts = [fact.note for fact in self.facts if fact.value is not None]
        stars = ["* suspect"] if any(map(_suspect, self.lines)) else []
        numbers = tuple(name for name in columns if name not in words)
        return Grid(self.title, columns, rows, (*facts, *stars), numbers)

    def values(self) -> dict[str, Any]:
        """For JSON: `about`, the facts, and `rows` by key."""
        rows = [{cell.key: cell.plain for cell in line} | {"suspect": _suspect(line)} for line in self.lines]
        return self.about | {fact.key: fact.plain for fact in self.facts} | {"rows": rows}


def _suspect(line: Line) -> bool:
    return any(cell.suspect for cell in line)
