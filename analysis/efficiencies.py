"""How much of a data sheet's figures a machine reaches, derived from published rows and never typed in.

Each figure is the median over the rows that can tell it, with the number of rows and their range; a user can state
another. The rows of one GPU differ by as much as rows of different GPUs do, so no figure is kept by GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis import published as pub
from kernels.shapes import ModelShape, dtype_bytes
from kernels.specs import GpuSpec

LARGE_PREFILL = 1024  # tokens from which a prefill is compute-bound: the ridges of the listed GPUs end at 419 FLOP/byte
SMALL_PREFILL = 64  # tokens up to which it reads its weights and little else
OTHER_TRAFFIC = ("loaded", "remote socket")  # links that shared their path, or took a longer one


@dataclass(frozen=True)
class Figure:
    """One efficiency or cost.

    Attributes
    ----------
    value : float
        A fraction, or seconds.
    rows : int
        Published rows it is the median of; 0 where it was stated.
    low, high : float
        Their range.
    what : str
        Which rows.
    """

    value: float
    rows: int
    low: float
    high: float
    what: str

    def text(self, unit: float = 1.0, name: str = "") -> str:
        """The value (times `unit`, called `name`), and where it comes from."""
        value = f"{self.value * unit:.3g}{name}"
        if not self.rows:
            return f"{value} (stated)"
        ends = f"{self.low * unit:.3g} to {self.high * unit:.3g}{name}"
        return f"{value} (median of {self.rows} published rows, {ends}: {self.what})"


@dataclass(frozen=True)
class Efficiencies:
    """What a prediction assumes beside the data sheet.

    Attributes
    ----------
    link_share : Figure
        Rate of one large contiguous copy / nominal link rate of one direction.
    per_copy_s : Figure
        Seconds a small copy costs in a loop of memcpy calls, in addition to its bytes.
    flops_share : Figure
        FLOP/s of a prefill of 1,024 tokens or more / dense BF16 peak.
    hbm_share : Figure
        Bytes of weights a second in a prefill of up to 64 tokens / memory bandwidth.
    """

    link_share: Figure
    per_copy_s: Figure
    flops_share: Figure
    hbm_share: Figure

    def stated(self, **values: float) -> Efficiencies:
        """The same with some figures stated by the user, e.g. `stated(flops_share=0.5)`."""
        return replace(self, **{name: Figure(value, 0, value, value, "stated") for name, value in values.items()})


def derive(published: pd.DataFrame) -> Efficiencies:
    """All four from the rows of `load_published`."""
    costs = pub.per_copy_costs(published)["value"]
    return Efficiencies(
        link_share=_figure(_link_shares(published), "pinned contiguous copies, one direction, otherwise idle"),
        per_copy_s=_figure(
            costs, "loops of cudaMemcpyAsync, up to 32 KiB a copy, submission and copying not told apart"
        ),
        flops_share=_figure(
            _flops_shares(published), f"prefills of {LARGE_PREFILL} tokens or more, mostly kernel sums"
        ),
        hbm_share=_figure(_hbm_shares(published), f"prefills of {SMALL_PREFILL} tokens, weights only"),
    )


def idle_link_rates(published: pd.DataFrame) -> pd.DataFrame:
    """`link_rates` without copies that had company on their path or took the longer one, with the `spec` of the GPU."""
    rows = pub.link_rates(published)
    about = rows["link"].fillna("") + " " + rows["method"]
    rows = rows[~about.str.contains("|".join(OTHER_TRAFFIC))]
    rows = rows.assign(spec=rows["hardware"].map(pub.find_spec))
    return rows[rows["spec"].notna()]


def _figure(values: Iterable[float], what: str) -> Figure:
    found = np.array(list(values), dtype=float)
    if not found.size:
        raise ValueError(f"no published rows to derive from: {what}")
    return Figure(float(np.median(found)), int(found.size), float(found.min()), float(found.max()), what)


def _link_shares(published: pd.DataFrame) -> list[float]:
    rows = idle_link_rates(published)
    return [float(row["value"]) / row["spec"].link_bytes_s for row in rows.to_dict("records")]


def _flops_shares(published: pd.DataFrame) -> list[float]:
    def share(shape: ModelShape, gpu: GpuSpec, dtype: str, tokens: int, seconds: float) -> float:
        return shape.prefill_flops(tokens) / seconds / gpu.bf16_flops

    return _prefills(published, share, lambda tokens: tokens >= LARGE_PREFILL)


def _hbm_shares(published: pd.DataFrame) -> list[float]:
    def share(shape: ModelShape, gpu: GpuSpec, dtype: str, tokens: int, seconds: float) -> float:
        return shape.layers * shape.layer_parameters * dtype_bytes(dtype) / seconds / gpu.hbm_bytes_s

    return _prefills(published, share, lambda tokens: tokens <= SMALL_PREFILL)


def _prefills(
    published: pd.DataFrame,
    share: Callable[[ModelShape, GpuSpec, str, int, float], float],
    counts: Callable[[int], bool],
) -> list[float]:
    found = []
    for series in pub.prefill_series(published, kind="prefill_total_s"):
        known = shape_and_spec(series.model, series.hardware)
        if known:
            points = zip(series.tokens.astype(int), series.seconds, strict=True)
            found += [share(*known, series.dtype, int(n), float(s)) for n, s in points if counts(int(n))]
    return found


def shape_and_spec(model: str, hardware: str) -> tuple[ModelShape, GpuSpec] | None:
    """Geometry and data sheet of published names; None unless both are known."""
    gpu = pub.find_spec(hardware)
    try:
        return (pub.find_shape(model), gpu) if gpu else None
    except ValueError:
        return None
