"""Rows that timed fewer layers than the model has, brought to the whole model.

What is proportional to the layers is multiplied, what is not is kept apart, and what cannot be known is dropped with
a reason. Scaled rows say so (`scaled`), and so must whatever is drawn from them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.contract import CLOCKS
from analysis.load import MEDIANS

COUNTS = ("bytes", "descriptors", "descriptors_merged")


def to_full_model(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scale the clocks and counts of partial rows to `layers_model` layers.

    recompute
        (t - outside_layers_s) * layers_model / layers_timed + outside_layers_s on the wall and device clocks:
        embedding, final norm and LM head run once. Their part of `issue_s` is not recorded, so that becomes NaN.
    swap, layer_split and layer_joined
        t * layers_model / layers_timed: the copies are as large, and as many more.
    swap, other layouts
        Dropped: in cross_layer, and in one contiguous copy, the fragment itself grows with the layers.
    copy
        As it is: its fragments are of no model.
    every other recovery
        Dropped: company, graphs and two streams at once do not grow with the layers alone. `analysis.recoveries` takes
        these rows as they are, and says how many layers were timed.

    Parameters
    ----------
    frame : pandas.DataFrame
        As `analysis.load.load` returns it; not modified.

    Returns
    -------
    tuple of pandas.DataFrame
        The rows for the whole model with a column `scaled`, and the dropped ones with a column `reason`.
    """
    fewer = frame["layers_timed"] < frame["layers_model"]
    scaled = fewer.fillna(False).astype(bool)  # a copy is of no model, so it is never scaled
    whole = frame.assign(scaled=scaled)
    reasons = [_refusal(row) if row["scaled"] else None for row in whole.to_dict("records")]
    refused = np.array([reason is not None for reason in reasons], dtype=bool)
    dropped = frame[refused].assign(reason=[reason for reason in reasons if reason is not None])
    whole = whole[~refused]
    records = [_scale(row) if row["scaled"] else row for row in whole.to_dict("records")]
    return pd.DataFrame(records, columns=whole.columns, index=whole.index).astype(whole.dtypes.to_dict()), dropped


def _refusal(row: dict[Any, Any]) -> str | None:
    """Why a partial row cannot be scaled; None if it can."""
    layers = f"{row['layers_timed']} of {row['layers_model']} layers timed"
    if row["recovery"] not in ("swap", "recompute"):
        return f"{layers}: a {row['recovery']} is not scaled"
    if row["recovery"] == "swap":
        if row["layout"] in ("layer_split", "layer_joined"):
            return None
        what = "one contiguous copy" if row["method"] == "contiguous" else f"layout {row['layout']}"
        return f"{layers}: {what} would have larger fragments for the whole model; not scaled"
    outside = row["outside_layers_s"]
    if pd.isna(outside):
        return f"{layers}: outside_layers_s was not recorded; not scaled"
    if outside >= min(row["wall_s"].min(), row["device_s"].min()):
        return f"{layers}: outside_layers_s of {outside:.4g} s is no part of the rounds; not scaled"
    return None


def _scale(row: dict[Any, Any]) -> dict[Any, Any]:
    factor = row["layers_model"] / row["layers_timed"]
    if row["recovery"] == "recompute":
        outside = row["outside_layers_s"]
        clocks = {clock: (row[clock] - outside) * factor + outside for clock in CLOCKS}
        clocks["issue_s"] = np.full_like(row["issue_s"], np.nan)
        counts: dict[str, Any] = {"flops": pd.NA}
    else:
        clocks = {clock: row[clock] * factor for clock in CLOCKS}
        counts = {c: pd.NA if pd.isna(row[c]) else row[c] * row["layers_model"] // row["layers_timed"] for c in COUNTS}
    medians = {median: float(np.median(clocks[clock])) for median, clock in zip(MEDIANS, CLOCKS, strict=True)}
    return row | clocks | medians | counts
