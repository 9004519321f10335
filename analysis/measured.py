"""One machine's measured rows as claims and predictions use them: whole-model rows, panels, curves over the length.

Rows of a CPU are left out: they say nothing about a GPU. Sweeps with axes of their own ask another question and stay
out of the panels and curves as well.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from analysis.contract import NothingToDraw
from analysis.figure19 import Panel, Selection, panels
from analysis.intervals import Estimate, median
from analysis.load import CASE_FIELDS, COLUMNS, plain_recompute
from analysis.scaling import to_full_model
from kernels.specs import GpuSpec, find


@dataclass(frozen=True, eq=False)
class Curve:
    """Recompute of one model, dtype and batch: (tokens of one sequence, seconds), lengths ascending."""

    model: str
    dtype: str
    batch: int
    points: tuple[tuple[int, Estimate], ...]


@dataclass(frozen=True, eq=False)
class Machine:
    """A GPU machine and what it measured.

    Attributes
    ----------
    name : str
        The user's label, or the hardware.
    hardware : str
        GPU, link and driver.
    frame : pandas.DataFrame
        Its rows as `analysis.load.load` returns them.
    """

    name: str
    hardware: str
    frame: pd.DataFrame

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Swaps whose bytes were compared and recomputes in one piece, brought to the whole model."""
        swaps = (self.frame["recovery"] == "swap") & self.frame["verified"].astype(bool)
        return to_full_model(self.frame[swaps | plain_recompute(self.frame)])[0]

    @cached_property
    def copies(self) -> pd.DataFrame:
        """Copies of fragments of no model, bytes compared."""
        return self.frame[(self.frame["recovery"] == "copy") & self.frame["verified"].astype(bool)]

    def cases(self, recovery: str) -> pd.DataFrame:
        """Rows of one recovery: those of `rows` or `copies`; of any other recovery as they were measured."""
        if recovery == "copy":
            return self.copies
        rows = self.rows if recovery in ("swap", "recompute") else self.frame
        return rows[rows["recovery"] == recovery]

    @cached_property
    def panels(self) -> list[Panel]:
        """Every pair of a way of swapping and a recompute; empty if there is none."""
        return self._panels[0]

    @property
    def no_panels(self) -> str:
        """Why there are no panels; empty if there are."""
        return self._panels[1]

    @cached_property
    def _panels(self) -> tuple[list[Panel], str]:
        try:
            return panels(self.frame, Selection(methods=(), layouts=(), placements=()))[0], ""
        except NothingToDraw as error:
            return [], str(error)

    @property
    def spec(self) -> GpuSpec | None:
        """Its data sheet; None if none is listed."""
        return find(self.hardware.split(",")[0])

    @property
    def pcie_generation(self) -> int | None:
        """Generation of the link to the host; None if unknown or not PCIe."""
        found = re.search(r"PCIe (\d)", self.hardware)
        return int(found[1]) if found else None

    def plain(self, recovery: str) -> pd.DataFrame:
        """Rows of one recovery without axes of a sweep's own."""
        rows = self.cases(recovery)
        extra = [name for name in rows.columns if name not in COLUMNS and name != "scaled"]
        return rows[rows[extra].isna().all(axis=1)]

    @cached_property
    def curves(self) -> list[Curve]:
        """Recompute over the length."""
        rows = self.plain("recompute")
        rows = rows[rows["block_size"].isna()]
        found = []
        for _, group in rows.groupby(["model", "dtype", "batch"]):
            first = group.iloc[0]
            points = tuple((int(cases["seq_len"].iloc[0]), seconds(cases)) for _, cases in group.groupby("seq_len"))
            found.append(Curve(str(first["model"]), str(first["dtype"]), int(first["batch"]), points))
        return found

    def suspect(self) -> str:
        """How many of its rows are suspect, in words to append to a reason; empty if none."""
        count = int(self.rows["suspect"].map(bool).sum())
        return f" ({count} of this machine's rows are suspect)" if count else ""


def machines(frame: pd.DataFrame | None) -> list[Machine]:
    """The GPU machines of a frame; none for None, and none for CPUs."""
    if frame is None or frame.empty:
        return []
    gpu = frame[frame["backend"] != "cpu"]
    return [Machine(str(name), str(rows["hardware"].iloc[0]), rows) for name, rows in gpu.groupby("machine")]


def seconds(rows: pd.DataFrame) -> Estimate:
    """Median wall clock of one case over its sessions, in seconds; the same case always gets the same interval."""
    first = rows.iloc[0]
    most = rows if rows["layers_timed"].isna().all() else rows[rows["layers_timed"] == rows["layers_timed"].max()]
    axes = [axis for axis in CASE_FIELDS if axis != "layers_timed"]
    key = zlib.crc32("|".join([str(first["machine"]), *(str(first[axis]) for axis in axes)]).encode())
    return median(list(most["wall_s"]), key=(key,))
