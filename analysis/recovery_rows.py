"""What rows of the recoveries between swap and recompute share: whose they are, how blocks were copied, estimates.

Rows are taken as they are: one that timed fewer layers than the model has is not scaled, and its `Subject` says so.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from analysis.intervals import Estimate, Floats, median

SUBJECT_AXES = ("machine", "hardware", "backend", "model", "dtype", "batch", "layers_timed", "layers_model")
WAY_AXES = ("method", "layout", "placement", "block_size", "programs", "staging_bytes")


@dataclass(frozen=True)
class Subject:
    """Whose rows they are. `layers_timed` below `layers_model`: seconds are of those layers alone, not scaled."""

    machine: str
    hardware: str
    backend: str
    model: str
    dtype: str
    batch: int
    layers_timed: int
    layers_model: int

    @property
    def name(self) -> str:
        """The hardware, after the user's label if there is one."""
        return self.hardware if self.machine == self.hardware else f"{self.machine}: {self.hardware}"

    @property
    def layers(self) -> str:
        """How many layers were timed, and that it was not scaled; empty for a whole model."""
        if self.layers_timed == self.layers_model:
            return ""
        return f"{self.layers_timed} of {self.layers_model} layers timed, not scaled"

    @property
    def what(self) -> str:
        """Model, element type, batch, layers."""
        batch = f" x {self.batch}" if self.batch > 1 else ""
        return ", ".join(filter(None, (self.model, self.dtype + batch, self.layers)))


@dataclass(frozen=True)
class Way:
    """How blocks cross the link; `programs` of direct_kernel, `staging_bytes` of gather_copy."""

    method: str
    layout: str
    placement: str
    block_size: int
    programs: int | None
    staging_bytes: int | None

    @property
    def copied(self) -> str:
        """The copy method with its option."""
        programs = f" x {self.programs} programs" if self.programs else ""
        staging = f", {self.staging_bytes / 2**20:g} MiB staging" if self.staging_bytes else ""
        return f"{self.method}{programs}{staging}"

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.copied}, {self.layout}, {self.placement}, block {self.block_size}"


def told_apart(ways: Iterable[Way]) -> tuple[dict[Way, str], str]:
    """What tells the ways apart, the copy method first; and what all share of layout, placement and block size."""
    parts = {way: (way.layout, way.placement, f"block {way.block_size}") for way in ways}
    same = [len(set(values)) == 1 for values in zip(*parts.values(), strict=True)]
    names = {
        way: ", ".join([way.copied, *(value for value, shared in zip(mine, same, strict=True) if not shared)])
        for way, mine in parts.items()
    }
    first = next(iter(parts.values()), ())
    return names, ", ".join(value for value, shared in zip(first, same, strict=True) if shared)


@dataclass(frozen=True, eq=False)
class Reached:
    """Tokens at which a curve passes a level.

    Attributes
    ----------
    tokens : Estimate
        Interpolated; an end of what was measured where the level lies beyond it.
    limit : str
        "at least" or "at most" at such an end, else empty.
    """

    tokens: Estimate
    limit: str

    @property
    def text(self) -> str:
        """In words, with the limit if there is one."""
        return f"{self.limit} {self.tokens.value:,.0f}".strip()


Found = TypeVar("Found")
Group = tuple[Subject, Way | None, dict[str, Any], pd.DataFrame]


def groups(rows: pd.DataFrame, *axes: str) -> Iterator[Group]:
    """Rows by subject, `axes` and way of copying, in order of these: rows themselves are in the order of a shuffle.

    The values of the axes come as a dict; the way is None where nothing is copied.
    """
    if rows.empty:
        return
    rows = rows.reindex(columns=list(dict.fromkeys((*rows.columns, *WAY_AXES))))
    for key, group in rows.groupby([*SUBJECT_AXES, *axes, *WAY_AXES], dropna=False):
        values = [plain(value) for value in key]
        subject, rest = values[: len(SUBJECT_AXES)], values[len(SUBJECT_AXES) :]
        asked, copied = rest[: len(axes)], rest[len(axes) :]
        way = Way(*copied) if copied[0] is not None else None
        yield Subject(*subject), way, dict(zip(axes, asked, strict=True)), group


def together(found: Iterable[Found], key: Callable[[Found], Any]) -> list[tuple[Any, list[Found]]]:
    """Results with the same key, keys in order of first appearance."""
    parts: dict[Any, list[Found]] = {}
    for one in found:
        parts.setdefault(key(one), []).append(one)
    return list(parts.items())


def cases(rows: pd.DataFrame, axis: str) -> Iterator[tuple[Any, pd.DataFrame]]:
    """The rows of each case over its sessions, and its value of `axis`, in order of that."""
    for _, case in rows.sort_values(axis, kind="stable").groupby("case_id", sort=False):
        yield plain(case[axis].iloc[0]), case


def plain(value: Any) -> Any:
    """A value of a frame without numpy or pandas: None for null, whole numbers as int."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or value is pd.NA or value != value:  # NaN alone differs from itself
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def fact(case: pd.DataFrame, name: str) -> Any:
    """A fact of a row's detail; a number's median over the sessions, anything else as the first has it."""
    known = case[name].dropna()
    if known.empty:
        return None
    return float(known.median()) if pd.api.types.is_numeric_dtype(known) else known.iloc[0]


def seconds(case: pd.DataFrame) -> Estimate:
    """Median wall clock of one case over its sessions."""
    return median(list(case["wall_s"]), key=_key(case))


def alone(case: pd.DataFrame) -> Estimate:
    """Median wall clock of its baseline."""
    return median(list(case["baseline_wall_s"]), key=_key(case))


def added(case: pd.DataFrame) -> Estimate:
    """Median over rounds of the wall clock less that of the baseline's round.

    The two were measured turn about, so that a round and its baseline are resampled together.
    """
    return _paired(case, np.subtract)


def slowdown(case: pd.DataFrame) -> Estimate:
    """Median over rounds of the wall clock over that of the baseline's round, resampled together."""
    return _paired(case, np.divide)


def _paired(case: pd.DataFrame, combine: Any) -> Estimate:
    pairs = zip(case["wall_s"], case["baseline_wall_s"], strict=True)
    return median([combine(with_it, without) for with_it, without in pairs], key=_key(case))


def per_second(work: float, time: Estimate) -> Estimate:
    """Work a second."""
    return Estimate(work, None if time.draws is None else np.full_like(time.draws, work)) / time


def is_suspect(case: pd.DataFrame) -> bool:
    """Whether one of its rows has a reason to distrust it."""
    return bool(case["suspect"].map(bool).any())


def reach(x: Sequence[float], curve: Sequence[Estimate], level: Estimate, log: bool = False) -> Reached:
    """Where a rising curve first passes `level`, linear between its points, or between their logarithms.

    Parameters
    ----------
    x : sequence of float
        Tokens, ascending.
    """
    scale: Any = np.log if log else np.asarray
    places = scale(np.asarray(x, dtype=float))
    values = scale(np.array([[point.value for point in curve]]))
    found = _first_above(places, values, scale(np.array([level.value])))
    draws = None
    if (drawn := joint(curve)) is not None or level.draws is not None:
        drawn = values if drawn is None else scale(drawn)
        at = np.array([level.value]) if level.draws is None else level.draws
        draws = _first_above(places, *_alike(drawn, scale(at)))
    above = values[0] > scale(level.value)
    limit = "at most" if above[0] else "" if above.any() else "at least"
    back: Any = np.exp if log else np.asarray
    return Reached(Estimate(float(back(found)[0]), None if draws is None else back(draws)), limit)


def joint(curve: Sequence[Estimate]) -> Floats | None:
    """Draws of all points, shape (resamples, points); None where no point has any."""
    known = [point.draws for point in curve if point.draws is not None]
    if not known:
        return None
    return np.array([np.full(len(known[0]), p.value) if p.draws is None else p.draws for p in curve]).T


def _alike(curves: Floats, levels: Floats) -> tuple[Floats, Floats]:
    count = max(len(curves), len(levels))
    return np.broadcast_to(curves, (count, curves.shape[1])), np.broadcast_to(levels, (count,))


def _first_above(x: Floats, curves: Floats, levels: Floats) -> Floats:
    """The first place at which each curve passes its level; an end of `x` where it never does, or did before."""
    above = curves > levels[:, None]
    right = np.clip(above.argmax(axis=1), 1, max(1, len(x) - 1))
    if len(x) == 1:
        return np.full(len(curves), x[0])
    each = np.arange(len(curves))
    low, high = curves[each, right - 1], curves[each, right]
    rise = np.where(high > low, high - low, 1)
    between = x[right - 1] + (levels - low) / rise * (x[right] - x[right - 1])
    found = np.where(above.any(axis=1), between, x[-1])
    return np.asarray(np.where(above[:, 0], x[0], found), dtype=float)


def _key(case: pd.DataFrame) -> tuple[int]:
    return (zlib.crc32("|".join((str(case["machine"].iloc[0]), str(case["case_id"].iloc[0]))).encode()),)
