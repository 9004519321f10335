"""Predictions of one model over GPUs and lengths as a table, with everything they assume; and their accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from analysis.accuracy import Accuracy
from analysis.efficiencies import derive
from analysis.grid import Grid
from analysis.predict import ORIGIN, RecomputePrediction, SwapPrediction, predict_recompute, predict_swap
from analysis.published import load_published
from analysis.tables import digits
from kernels.shapes import Layout, ModelShape
from kernels.specs import GpuSpec

MS = 1e3


@dataclass(frozen=True)
class Prediction:
    """One GPU, length and block size."""

    model: str
    dtype: str
    layout: str
    gpu: GpuSpec
    tokens: int
    block_size: int
    swap: SwapPrediction
    recompute: RecomputePrediction

    @property
    def ratio(self) -> float:
        """Recompute / round trip of a swap; below 1 recompute is cheaper."""
        return self.recompute.seconds / self.swap.round_trip_s

    def values(self) -> dict[str, Any]:
        """Plain values: seconds, and the assumptions in words."""
        facts = {name: getattr(self, name) for name in ("model", "dtype", "layout", "tokens", "block_size")}
        return {"gpu": self.gpu.name, **facts} | {
            "swap_one_way_s": self.swap.seconds,
            "swap_round_trip_s": self.swap.round_trip_s,
            "recompute_s": self.recompute.seconds,
            "recompute_to_round_trip": self.ratio,
            "bound": self.recompute.bound,
            "swap_assumption": self.swap.assumption,
            "recompute_assumption": self.recompute.assumption,
            "origin": ORIGIN,
        }


def predict_all(
    shape: ModelShape,
    gpus: Sequence[GpuSpec],
    lengths: Sequence[int],
    blocks: Sequence[int],
    layout: Layout,
    dtype: str,
) -> list[Prediction]:
    """Every GPU, length and block size, in that order, with efficiencies derived from published rows."""
    known = derive(load_published())
    return [
        Prediction(
            shape.name,
            dtype,
            layout,
            gpu,
            tokens,
            block_size,
            predict_swap(shape, tokens, gpu, known, block_size=block_size, layout=layout, dtype=dtype),
            predict_recompute(shape, tokens, gpu, known, dtype=dtype),
        )
        for gpu in gpus
        for tokens in lengths
        for block_size in blocks
    ]


def grids(found: Sequence[Prediction]) -> list[Grid]:
    """The predictions, then what they assume: one line for each different figure."""
    first = found[0]
    columns = ("GPU", "tokens", "block", "swap in\nms", "out and in\nms", "recompute\nms", "bound by", "cheaper")
    rows = tuple(
        (
            entry.gpu.name,
            f"{entry.tokens:,}",
            str(entry.block_size),
            digits(entry.swap.seconds * MS),
            digits(entry.swap.round_trip_s * MS),
            digits(entry.recompute.seconds * MS),
            entry.recompute.bound,
            f"recompute, {1 / entry.ratio:.2f} x" if entry.ratio < 1 else f"swap, {entry.ratio:.2f} x",
        )
        for entry in found
    )
    title = f"{first.model}, {first.dtype}, {first.layout}, a memcpy a fragment ({ORIGIN}, not measured)"
    notes = ("cheaper: out and in against recompute, and by how many times",)
    return [Grid(title, columns, rows, notes, numbers=columns[1:6]), _assumptions(found)]


def _assumptions(found: Sequence[Prediction]) -> Grid:
    """A machine's figures in a line each; where all machines share one, once. The plan is that of the table's rows."""
    lines = []
    for entry in {entry.gpu.name: entry for entry in found}.values():
        _, _, rest = entry.swap.assumption.partition("; ")
        lines += [f"{entry.gpu.name}, swap: {rest}", f"{entry.gpu.name}, recompute: {entry.recompute.assumption}"]
    return Grid("What this assumes", (), (), tuple(lines))


def accuracy_grid(summary: Sequence[Accuracy]) -> Grid:
    """How far such predictions are off, by kind and source."""
    columns = ("predicted", "cases", "median\nfactor", "worst\nfactor", "source; worst case")
    rows = tuple(
        (
            entry.what,
            str(entry.cases),
            f"{entry.median_factor:.2f}",
            f"{entry.worst_factor:.2f}",
            f"{entry.source}{'' if entry.origin in ('published', 'all') else ' (measured)'}\n{entry.worst_case}",
        )
        for entry in summary
    )
    notes = ("factor: predicted / actual or its inverse, whichever is above 1",)
    return Grid("Accuracy of such predictions", columns, rows, notes, numbers=columns[1:4])


def accuracy_values(summary: Sequence[Accuracy]) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [asdict(entry) for entry in summary]


def cases_grid(compared: pd.DataFrame) -> Grid:
    """Every case of `analysis.accuracy.compare`: predicted, actual, and the factor between them."""
    columns = ("predicted", "case", "ms", "actual, ms", "factor", "origin")
    rows = tuple(
        (
            str(case["what"]),
            str(case["case"]),
            digits(case["predicted_s"] * 1e3),
            digits(case["actual_s"] * 1e3),
            f"{case['factor']:.2f}" + ("*" if case["in_sample"] else ""),
            str(case["origin"]),
        )
        for case in compared.to_dict("records")
    )
    return Grid("Every case", columns, rows, ("* helped to derive the efficiencies",), numbers=columns[2:5])
