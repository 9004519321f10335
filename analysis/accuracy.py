"""Predicted against actual: every published and measured case that a data sheet can predict, and how far off it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis import published as pub
from analysis.efficiencies import LARGE_PREFILL, SMALL_PREFILL, Efficiencies, derive, idle_link_rates, shape_and_spec
from analysis.measured import machines, seconds
from analysis.predict import GB, predict_copies, predict_recompute, predict_swap
from kernels import shapes

COLUMNS = ("what", "case", "hardware", "tokens", "predicted_s", "actual_s", "factor", "in_sample", "origin", "source")
LOOPS = ("cudaMemcpyAsync per block",)  # methods that the model of a copy loop describes
# vLLM 0.12 and later: all layers of 16 tokens in one block (the blog of 2026-01-08 used it for its load times).
LOADED_BLOCKS: dict[str, Any] = {"block_size": 16, "layout": "cross_layer"}


@dataclass(frozen=True)
class Accuracy:
    """How far predictions of one kind are off: `factor` is max(predicted / actual, actual / predicted)."""

    what: str
    source: str
    origin: str
    cases: int
    median_factor: float
    worst_factor: float
    worst_case: str


def compare(
    frame: pd.DataFrame | None, published: pd.DataFrame, efficiencies: Efficiencies | None = None
) -> pd.DataFrame:
    """Predicted and actual seconds of every case whose model and GPU are known, one row a case.

    Parameters
    ----------
    frame : pandas.DataFrame or None
        Measured rows as `analysis.load.load` returns them; CPU rows are left out.
    published : pandas.DataFrame
        As `analysis.published.load_published` returns it.
    efficiencies : Efficiencies, optional
        Derived from `published` unless given.

    Returns
    -------
    pandas.DataFrame
        `COLUMNS`; `in_sample` is true where the row helped to derive the efficiencies, so that its factor shows how
        much rows differ, not how well a new machine is predicted.
    """
    known = efficiencies or derive(published)
    parts = (_prefills(published, known), _loads(published, known), _loops(published, known), _links(published, known))
    records = [record for part in parts for record in part]
    records += [record for machine in machines(frame) for record in _measured(machine.rows, known)]
    table = pd.DataFrame.from_records(records)
    factor = table["predicted_s"] / table["actual_s"]
    return table.assign(factor=factor.where(factor >= 1, 1 / factor))[list(COLUMNS)]


def summary(comparison: pd.DataFrame) -> list[Accuracy]:
    """Median and worst factor by what was predicted and source, largest groups first, then of all rows."""
    groups = comparison.groupby(["what", "source", "origin"], sort=False)
    found = [_accuracy(str(what), str(source), str(origin), group) for (what, source, origin), group in groups]
    return [*sorted(found, key=lambda entry: -entry.cases), _accuracy("all", "all", "all", comparison)]


def _accuracy(what: str, source: str, origin: str, rows: pd.DataFrame) -> Accuracy:
    worst = rows.iloc[int(rows["factor"].to_numpy().argmax())]
    return Accuracy(
        what, source, origin, len(rows), float(rows["factor"].median()), float(worst["factor"]), str(worst["case"])
    )


def _record(what: str, case: str, hardware: str, predicted_s: float, actual_s: float, **more: Any) -> dict[str, Any]:
    facts = {"what": what, "case": case, "hardware": hardware, "predicted_s": predicted_s, "actual_s": float(actual_s)}
    return facts | {"tokens": None, "in_sample": False, "origin": "published"} | more


def _prefills(published: pd.DataFrame, known: Efficiencies) -> Iterator[dict[str, Any]]:
    for series in pub.prefill_series(published):
        if (pair := shape_and_spec(series.model, series.hardware)) is None:
            continue
        shape, gpu = pair
        kernels = series.kind == "prefill_total_s"
        what = "recompute" if kernels else "recompute, first token served"
        for tokens, actual in zip(series.tokens.astype(int), series.seconds, strict=True):
            predicted = predict_recompute(shape, int(tokens), gpu, known, dtype=series.dtype).seconds
            case = f"{series.model}, {tokens} tokens, {series.hardware}, {series.method}"
            used = kernels and (tokens >= LARGE_PREFILL or tokens <= SMALL_PREFILL)
            more = {"tokens": tokens, "in_sample": used, "source": series.source}
            yield _record(what, case, series.hardware, predicted, actual, **more)


def _loads(published: pd.DataFrame, known: Efficiencies) -> Iterator[dict[str, Any]]:
    for series in pub.load_series(published):
        if (pair := shape_and_spec(series.model, series.hardware)) is None:
            continue
        shape, gpu = pair
        for tokens, actual in zip(series.tokens.astype(int), series.seconds, strict=True):
            predicted = predict_swap(shape, int(tokens), gpu, known, dtype=series.dtype, **LOADED_BLOCKS).seconds
            case = f"{series.model}, {tokens} tokens, {series.hardware}, {series.method}"
            more = {"tokens": tokens, "source": series.source}
            yield _record("swap in, first token served", case, series.hardware, predicted, actual, **more)


def _loops(published: pd.DataFrame, known: Efficiencies) -> Iterator[dict[str, Any]]:
    for series in pub.copy_series(published):
        gpu = pub.find_spec(series.hardware)
        if gpu is None or not series.method.startswith(LOOPS):
            continue
        for size, count, actual in zip(series.fragment_bytes, series.descriptors, series.seconds, strict=True):
            predicted = predict_copies(int(count), int(size * count), gpu, known).seconds
            case = f"{count:.0f} copies of {size / 1024:g} KiB, {series.direction}, {series.hardware}, {series.method}"
            used = size <= 32768  # the rows whose per-copy cost is published
            yield _record("copy loop", case, series.hardware, predicted, actual, in_sample=used, source=series.source)


def _links(published: pd.DataFrame, known: Efficiencies) -> Iterator[dict[str, Any]]:
    for row in idle_link_rates(published).to_dict("records"):
        predicted = predict_copies(1, int(GB), row["spec"], known).seconds
        case = f"1 GB, {row['direction']}, {row['hardware']} ({row['id']})"
        more = {"in_sample": True, "source": row["source"]}
        yield _record("contiguous copy", case, row["hardware"], predicted, GB / row["value"], **more)


def _measured(rows: pd.DataFrame, known: Efficiencies) -> Iterator[dict[str, Any]]:
    """Recompute and memcpy_loop or contiguous swaps of known models on known GPUs."""
    looped = rows["recovery"].eq("recompute") | rows["method"].isin(["memcpy_loop", "contiguous"])
    rows = rows[looped & rows["model"].isin(list(shapes.SHAPES))]
    for _, case in rows.groupby("case_id"):
        first = case.iloc[0]
        gpu = pub.find_spec(str(first["hardware"]).split(",")[0])
        if gpu is None:
            continue
        shape, tokens, batch = shapes.find(first["model"]), int(first["seq_len"]), int(first["batch"])
        if first["recovery"] == "recompute":
            predicted = predict_recompute(shape, tokens, gpu, known, dtype=first["dtype"], batch=batch).seconds
        else:
            blocks = {} if pd.isna(first["block_size"]) else {k: first[k] for k in ("block_size", "layout")}
            predicted = predict_swap(shape, tokens * batch, gpu, known, dtype=first["dtype"], **blocks).seconds
        more = {"tokens": tokens * batch, "origin": "measured", "source": str(first["machine"])}
        yield _record(
            first["recovery"], str(first["name"]), str(first["hardware"]), predicted, seconds(case).value, **more
        )
