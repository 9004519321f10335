"""Series of published values: one source, one method, one quantity each.

A sum of kernel times and a served time to first token are two series, never one. Frames are those of
`analysis.published.load_published`; selectors raise ValueError, naming what there is, for a hardware, model, method or
quantity that no row has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PREFILL_KINDS = ("prefill_total_s", "ttft_s")
LOADS = "load KV"  # a time to first token by loading is not a prefill
CONTIGUOUS = ("cudaMemcpy contiguous", "copy engine contiguous", "copy_ contiguous", "cuMemcpyHtoD, pinned default")
NOT_ALONE = "not registered|GPUs loaded"  # pageable memory, or neighbours copying at the same time


@dataclass(frozen=True, eq=False)
class PrefillSeries:
    """Seconds over tokens from one source.

    Attributes
    ----------
    kind : str
        "prefill_total_s": work of the prefill alone (a sum of kernel times, or an engine's step, as `method` says);
        "ttft_s": end to end, first token out.
    tokens, seconds : numpy.ndarray
        In order of tokens.
    reading_error : numpy.ndarray
        Relative error of reading a figure or of rounding, where the source or the reader gives one; else 0.
    """

    hardware: str
    model: str
    dtype: str
    kind: str
    method: str
    source: str
    tokens: Floats
    seconds: Floats
    reading_error: Floats


@dataclass(frozen=True, eq=False)
class CopySeries:
    """Rates of many copies of one size each, from one source.

    Attributes
    ----------
    direction : str
        "swap_in", "swap_out", or "" where the source does not say.
    fragment_bytes, descriptors, bytes_s : numpy.ndarray
        Bytes of one copy, number of copies, and bytes a second over all of them.
    reading_error : numpy.ndarray
        As in `PrefillSeries`.
    """

    hardware: str
    method: str
    direction: str
    source: str
    fragment_bytes: Floats
    descriptors: Floats
    bytes_s: Floats
    reading_error: Floats

    @property
    def seconds(self) -> Floats:
        """Time of the whole transfer: descriptors x fragment / rate."""
        return self.descriptors * self.fragment_bytes / self.bytes_s


def prefill_series(
    frame: pd.DataFrame, hardware: str | None = None, model: str | None = None, kind: str | None = None
) -> list[PrefillSeries]:
    """Prefill times by source, method and kind; one kind only if it is named ("prefill_total_s" or "ttft_s").

    Times to first token by loading the KV cache are left out: see `load_series`.
    """
    return _prefills(_where(frame, hardware=hardware, model=model, quantity=kind), loads=False)


def load_series(frame: pd.DataFrame, hardware: str | None = None, model: str | None = None) -> list[PrefillSeries]:
    """Times to first token where the KV cache came from host memory instead of a prefill."""
    return _prefills(_where(frame, hardware=hardware, model=model), loads=True)


def _prefills(frame: pd.DataFrame, loads: bool) -> list[PrefillSeries]:
    rows = frame[frame["quantity"].isin(PREFILL_KINDS) & (frame["x_name"] == "tokens")]
    rows = rows[rows["method"].str.startswith(LOADS) == loads]
    by = ["hardware", "model", "dtype", "quantity", "method", "source"]
    found = []
    for names, group in rows.sort_values("x").fillna(dict.fromkeys(by, "")).groupby(by):
        hardware, model, dtype, kind, method, source = map(str, names)
        numbers = _floats(group["x"]), _floats(group["value"]), _reading_error(group)
        found.append(PrefillSeries(hardware, model, dtype, kind, method, source, *numbers))
    return found


def copy_series(
    frame: pd.DataFrame, hardware: str | None = None, method: str | None = None, direction: str | None = None
) -> list[CopySeries]:
    """Copy rates over fragment size (and number of copies) by source, method and direction."""
    frame = _where(frame, hardware=hardware, method=method, direction=direction)
    rows = frame[(frame["quantity"] == "rate_bytes_s") & (frame["x_name"] == "fragment_bytes")]
    rows = rows[rows["n_descriptors"].notna()].sort_values(["x", "n_descriptors"])
    found = []
    by = ["hardware", "method", "direction", "source"]
    for names, group in rows.fillna(dict.fromkeys(by, "")).groupby(by):
        named, kind, way, source = map(str, names)
        numbers = _floats(group["x"]), _floats(group["n_descriptors"]), _floats(group["value"]), _reading_error(group)
        found.append(CopySeries(named, kind, way, source, *numbers))
    return found


def link_rates(frame: pd.DataFrame, hardware: str | None = None) -> pd.DataFrame:
    """Rates of large contiguous copies from pinned memory, bytes/s in `value`, one direction at a time."""
    rows = _where(frame, hardware=hardware)
    rows = rows[(rows["quantity"] == "rate_bytes_s") & rows["direction"].isin(["swap_in", "swap_out"])]
    pinned = rows["method"].str.startswith(CONTIGUOUS) & ~rows["method"].str.contains(NOT_ALONE)
    return rows[pinned | rows["method"].str.startswith("nvbandwidth")]


def per_copy_costs(frame: pd.DataFrame, hardware: str | None = None) -> pd.DataFrame:
    """What one copy of a small fragment costs: seconds in `value`; submission and copying are not told apart."""
    rows = _where(frame, hardware=hardware)
    return rows[rows["quantity"] == "per_copy_s"]


def _where(frame: pd.DataFrame, **wanted: str | None) -> pd.DataFrame:
    for column, value in wanted.items():
        if value is None:
            continue
        if value not in set(frame[column].dropna()):
            known = ", ".join(sorted(map(str, frame[column].dropna().unique())))
            raise ValueError(f"no published {column} {value!r}; there are: {known}")
        frame = frame[frame[column] == value]
    return frame


def _reading_error(rows: pd.DataFrame) -> Floats:
    """From spreads of the form `+-e`; `a..b` is a range over runs or software, not an error."""
    stated = rows["spread"].str.startswith("+-", na=False)
    return np.where(stated, (rows["high"] - rows["value"]) / rows["value"], 0.0)


def _floats(column: pd.Series) -> Floats:
    return column.to_numpy(dtype=float)
