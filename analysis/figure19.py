"""Figure 19 (a) of the PagedAttention paper as numbers: swap and recompute over block sizes.

Kwon et al., SOSP 2023, section 7.3. Medians of the wall clock. Swap in+out is the sum of two loops timed apart, as
the paper's artifact has it (sosp-ae-astra, `benchmark_swap.py`); recompute uses no blocks, so one time stands for
every block size.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.contract import NothingToDraw
from analysis.intervals import Estimate, median
from analysis.load import CASE_FIELDS, COLUMNS, plain_recompute
from analysis.scaling import to_full_model

SERIES = {"recompute": "Recompute", "swap_in": "Swap in", "swap_out": "Swap out", "swap_in_out": "Swap in+out"}
SHARED = ["machine", "hardware", "backend", "model", "dtype", "seq_len", "batch", "origin"]
SWAPPED = ["layout", "method", "placement"]


@dataclass(frozen=True)
class Selection:
    """Which panels: every combination of the values named. Models and lengths: all there are unless named."""

    methods: tuple[str, ...] = ("memcpy_loop",)
    layouts: tuple[str, ...] = ("layer_split",)
    placements: tuple[str, ...] = ("scattered",)
    models: tuple[str, ...] = ()
    seq_lens: tuple[int, ...] = ()
    with_cpu: bool = False


@dataclass(frozen=True)
class Point:
    """One block size (tokens): seconds of wall clock, None where a direction was not measured.

    `origins` says by series where a number comes from, if it is not the panel's `origin`.
    """

    block_size: int
    recompute: Estimate
    swap_in: Estimate | None
    swap_out: Estimate | None
    suspect: frozenset[str] = frozenset()
    origins: dict[str, str] = field(default_factory=dict)

    @property
    def swap_in_out(self) -> Estimate | None:
        """One sequence swapped out and in again: the cost of a preemption by swapping."""
        return None if self.swap_in is None or self.swap_out is None else self.swap_in + self.swap_out

    @property
    def ratio(self) -> Estimate | None:
        """Recompute / swap in+out; below 1 recompute is faster."""
        return None if self.swap_in_out is None else self.recompute / self.swap_in_out


@dataclass(frozen=True)
class Panel:
    """One machine, model and way of swapping; `points` in order of block size.

    `scaled` names the series ("swap", "recompute") that timed fewer layers; `suspect` holds the reasons by series;
    `notes` are further lines of the title, e.g. the sources of published numbers.
    """

    machine: str
    hardware: str
    backend: str
    model: str
    dtype: str
    seq_len: int
    batch: int
    origin: str
    layout: str
    method: str
    placement: str
    points: tuple[Point, ...]
    scaled: dict[str, str]
    suspect: dict[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The hardware, after the user's label if there is one."""
        return self.hardware if self.machine == self.hardware else f"{self.machine}: {self.hardware}"

    @property
    def scaled_lines(self) -> list[str]:
        """What was scaled to the whole model, a line for each different way."""
        by_text: dict[str, list[str]] = {}
        for series, text in self.scaled.items():
            by_text.setdefault(text, []).append(series)
        return [f"{' and '.join(series)}: {text}" for text, series in by_text.items()]

    def origin_of(self, point: Point, series: str) -> str:
        """Where a number comes from: "measured", "published" or "modelled"."""
        return point.origins.get(series, self.origin)

    @property
    def pairs(self) -> list[tuple[int, Estimate]]:
        """(block size, recompute / swap in+out) where both directions were measured."""
        return [(point.block_size, point.ratio) for point in self.points if point.ratio is not None]


def panels(frame: pd.DataFrame, selection: Selection | None = None) -> tuple[list[Panel], list[str]]:
    """The panels of the figure, and notes on what was left out.

    Parameters
    ----------
    frame : pandas.DataFrame
        As `analysis.load.load` returns it.

    Raises
    ------
    NothingToDraw
        If swap or recompute is missing, or they share no machine, model, dtype, length and batch.
    """
    selection = selection or Selection()
    frame, notes = _usable(frame)
    for axis, wanted in (("model", selection.models), ("seq_len", selection.seq_lens)):
        frame = _where(frame, axis, wanted, "rows")
    swaps, recomputes = (_recovery(frame, name) for name in ("swap", "recompute"))
    for axis, chosen in zip(SWAPPED, (selection.layouts, selection.methods, selection.placements), strict=True):
        swaps = _where(swaps, axis, chosen, "swap rows")
    found = [panel for _, group in swaps.groupby([*SHARED, *SWAPPED]) if (panel := _panel(group, recomputes))]
    if not found:
        raise NothingToDraw(f"no pair to compare: swap in and out of {_keys(swaps)}; recompute of {_keys(recomputes)}")
    return _without_cpu(found, notes, selection.with_cpu)


def _usable(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Whole-model rows of swap, and of recompute in one piece; a swap whose bytes were not compared has no number."""
    frame = frame[(frame["recovery"] == "swap") | plain_recompute(frame)]
    unverified = (frame["recovery"] == "swap") & ~frame["verified"].astype(bool)
    notes = [f"{unverified.sum()} swap rows left out: their bytes were not verified"] if unverified.any() else []
    frame, dropped = to_full_model(frame[~unverified])
    dropped = dropped[dropped["method"] != "contiguous"]
    notes += [f"{count} rows left out: {reason}" for reason, count in Counter(dropped["reason"]).items()]
    same_but_layers = ["machine", *(axis for axis in CASE_FIELDS if axis != "layers_timed"), *_extra_axes(frame)]
    most = frame.groupby(same_but_layers, dropna=False)["layers_timed"].transform("max")
    return frame[frame["layers_timed"] == most], notes


def _extra_axes(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame.columns if name not in COLUMNS and name != "scaled"]


def _where(frame: pd.DataFrame, axis: str, wanted: Iterable[Any], what: str) -> pd.DataFrame:
    present = sorted(frame[axis].dropna().unique())
    for value in wanted:
        if value not in present:
            raise NothingToDraw(f"no {what} with {axis} {value}; there are: {', '.join(map(str, present)) or 'none'}")
    return frame[frame[axis].isin(list(wanted))] if wanted else frame


def _recovery(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    chosen = frame[frame["recovery"] == name]
    if chosen.empty:
        raise NothingToDraw(f"no {name} rows; Figure 19 needs swap and recompute of one model, dtype and seq_len")
    extra = _extra_axes(chosen)
    plain = chosen[chosen[extra].isna().all(axis=1)]  # sweeps with axes of their own ask another question
    return chosen if plain.empty else plain


def _panel(swaps: pd.DataFrame, recomputes: pd.DataFrame) -> Panel | None:
    shared = {axis: swaps[axis].iloc[0] for axis in SHARED}
    same = recomputes[(recomputes[SHARED] == pd.Series(shared)).all(axis=1)]
    by_direction = {d: swaps[swaps["direction"] == d] for d in ("swap_in", "swap_out")}
    if same.empty or not set(by_direction["swap_in"]["block_size"]) & set(by_direction["swap_out"]["block_size"]):
        return None
    recompute = _estimate(same)
    points = tuple(_point(group, same, recompute) for _, group in swaps.groupby("block_size"))
    groups = {"recompute": same, **by_direction}
    return Panel(
        **{axis: value.item() if hasattr(value, "item") else value for axis, value in shared.items()},
        **{axis: swaps[axis].iloc[0] for axis in SWAPPED},
        points=points,
        scaled={name: text for name, rows in (("swap", swaps), ("recompute", same)) if (text := _layers(rows))},
        suspect={name: reasons for name, rows in groups.items() if (reasons := _reasons(rows))},
    )


def _point(swaps: pd.DataFrame, recomputes: pd.DataFrame, recompute: Estimate) -> Point:
    rows = {d: swaps[swaps["direction"] == d] for d in ("swap_in", "swap_out")}
    suspect = {name for name, group in {**rows, "recompute": recomputes}.items() if _reasons(group)}
    if suspect & rows.keys():
        suspect.add("swap_in_out")
    swap_in, swap_out = (None if rows[d].empty else _estimate(rows[d]) for d in ("swap_in", "swap_out"))
    return Point(int(swaps["block_size"].iloc[0]), recompute, swap_in, swap_out, frozenset(suspect))


def _estimate(rows: pd.DataFrame) -> Estimate:
    """Median over the sessions of one case; two cases in one place would be an average of different things."""
    differing = [axis for axis in (*CASE_FIELDS, *_extra_axes(rows)) if rows[axis].nunique(dropna=False) > 1]
    if differing:
        what = rows["recovery"].iloc[0]
        raise NothingToDraw(f"{what} rows of one place in the figure differ in {', '.join(differing)}")
    key = zlib.crc32("|".join((rows["machine"].iloc[0], rows["case_id"].iloc[0])).encode())
    return median(list(rows["wall_s"]), key=(key,))


def _reasons(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reason for reasons in rows["suspect"] for reason in reasons))


def _layers(rows: pd.DataFrame) -> str:
    if not rows["scaled"].any():
        return ""
    return f"{rows['layers_timed'].min()} of {rows['layers_model'].max()} layers timed, scaled to all"


def _keys(rows: pd.DataFrame) -> str:
    columns = ["machine", "model", "dtype", "seq_len", "batch"]
    keys = [" ".join(map(str, key)) for key in rows[columns].drop_duplicates().itertuples(index=False)]
    return "; ".join(keys[:3]) + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")


def _without_cpu(found: list[Panel], notes: list[str], with_cpu: bool) -> tuple[list[Panel], list[str]]:
    gpu = [panel for panel in found if panel.backend != "cpu"]
    if with_cpu or not gpu or len(gpu) == len(found):
        return found, notes
    return gpu, [*notes, f"{len(found) - len(gpu)} CPU panels left out beside GPU ones; --with-cpu draws them"]
