"""Other people's measurements, `results/reference/published.csv`, as a tidy frame in SI units. Imports no torch.

The file is kept as it was gathered; what is converted here (units, names of models and directions) stands beside what
the source printed. Selectors (`analysis.published_series`) are offered here as well.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.contract import BadFile
from analysis.published_series import (
    CopySeries,
    PrefillSeries,
    copy_series,
    link_rates,
    load_series,
    per_copy_costs,
    prefill_series,
)
from kernels import shapes, specs

__all__ = [
    "CopySeries",
    "PrefillSeries",
    "copy_series",
    "find_shape",
    "find_spec",
    "link_rates",
    "load_published",
    "load_series",
    "per_copy_costs",
    "prefill_series",
]

PUBLISHED_PATH = Path(__file__).resolve().parents[1] / "results" / "reference" / "published.csv"
TEXTS = ("kind", "hardware", "link", "model", "dtype", "quantity", "direction", "method", "x_name", "unit")
SOURCES = ("spread", "source", "source_detail", "how_read")
AS_GATHERED = ("id", *TEXTS, "x", "n_descriptors", "value", *SOURCES)
COLUMNS = (*AS_GATHERED, "model_published", "value_published", "unit_published", "low", "high", "origin")
# unit as published -> (SI unit, factor); GB is 1e9 bytes
UNITS = {
    "s": ("s", 1.0),
    "us": ("s", 1e-6),
    "GB/s": ("B/s", 1e9),
    "s/GB": ("s/B", 1e-9),
    "tok/s": ("tok/s", 1.0),
    "1": ("1", 1.0),
}
# Quantities whose published name says a unit that is converted.
QUANTITIES = {
    "bandwidth_gbps": "rate_bytes_s",
    "per_copy_us": "per_copy_s",
    "submit_us": "submit_s",
    "copy_us": "copy_s",
    "swap_us_per_token": "swap_s_per_token",
    "pin_s_per_gb": "pin_s_per_byte",
    "break_even_link_gbps": "break_even_link_bytes_s",
    "balance_link_gbps": "balance_link_bytes_s",
    "kv_produced_gbps": "kv_produced_bytes_s",
}
DIRECTIONS = {
    "H2D": "swap_in",
    "D2H": "swap_out",
    "bidir": "both",
    "H2D while D2H": "swap_in_during_swap_out",
    "D2H while H2D": "swap_out_during_swap_in",
}
# Llama 3.1 has the geometry of Llama 3 (config.json of meta-llama/Llama-3.1-8B); only the rotary scaling differs.
MODELS = {
    "Llama-3-8B": "llama-3-8b",
    "Llama-3.1-8B-Instruct": "llama-3-8b",
    "Llama-3-8B TP2 shard": "llama-3-8b-tp2",
    "Llama-3-70B": "llama-3-70b",
    "Llama-3-70B TP4 shard": "llama-3-70b-tp4",
    "Llama-3-70B TP8 shard": "llama-3-70b-tp8",
    "OPT-13B (MHA)": "opt-13b",
}
_NUMBER = r"(\d[\d.]*(?:e-?\d+)?)"


def load_published(path: str | Path = PUBLISHED_PATH) -> pd.DataFrame:
    """Read the published values into a frame, one row a value, columns `COLUMNS`.

    Values, `low` and `high` (of `spread`, where it names two ends or a reading error) are in the SI unit of `unit`;
    `value_published` and `unit_published` are what the file has. `model` is a name of `kernels.shapes` (`-tp8`: one
    of 8 shards) where the geometry is known, else as published. `origin` is "published".

    Raises
    ------
    BadFile
        One line: a missing column, a value without source, an unknown unit or direction, an id used twice.
    """
    raw = pd.read_csv(path)
    _check(path, raw)
    scale = raw["unit"].map({unit: factor for unit, (_, factor) in UNITS.items()})
    ends = _ends(raw)
    frame = raw.assign(
        model_published=raw["model"],
        model=raw["model"].map(lambda name: MODELS.get(name, name), na_action="ignore"),
        quantity=raw["quantity"].replace(QUANTITIES),
        direction=raw["direction"].map(DIRECTIONS),
        value_published=raw["value"],
        unit_published=raw["unit"],
        value=raw["value"] * scale,
        unit=raw["unit"].map({unit: si for unit, (si, _) in UNITS.items()}),
        low=ends["low"] * scale,
        high=ends["high"] * scale,
        origin="published",
    )
    return frame[list(COLUMNS)]


def _check(path: str | Path, raw: pd.DataFrame) -> None:
    if missing := [name for name in AS_GATHERED if name not in raw.columns]:
        raise BadFile(path, f"no column {', '.join(missing)}")
    problems = {
        "id used twice": raw["id"].duplicated(),
        "no source": raw["source"].isna(),
        "value is not a positive number": ~(pd.to_numeric(raw["value"], errors="coerce") > 0),
        f"unknown unit; known: {', '.join(UNITS)}": ~raw["unit"].isin(list(UNITS)),
        f"unknown direction; known: {', '.join(DIRECTIONS)}": raw["direction"].notna()
        & ~raw["direction"].isin(list(DIRECTIONS)),
    }
    for problem, rows in problems.items():
        if rows.any():
            raise BadFile(path, f"{raw['id'][rows].iloc[0]}: {problem}")


def _ends(raw: pd.DataFrame) -> pd.DataFrame:
    """Ends of the spread in the published unit: `a..b`, or value -+ e; NaN where it is words."""
    span = raw["spread"].str.extract(rf"^{_NUMBER}\.\.{_NUMBER}").astype(float)
    error = raw["spread"].str.extract(rf"^\+-{_NUMBER}")[0].astype(float)
    low, high = span[0].fillna(raw["value"] - error), span[1].fillna(raw["value"] + error)
    return pd.DataFrame({"low": low, "high": high})


def find_shape(model: str) -> shapes.ModelShape:
    """The shape of a model name of this frame, shards included; ValueError if it is none of `kernels.shapes`."""
    name, _, tp = model.partition("-tp")
    return shapes.find(name).shard(int(tp)) if tp else shapes.find(name)


def find_spec(hardware: str) -> specs.GpuSpec | None:
    """The data sheet of a published hardware name; None if there is none, or if the name stands for several GPUs."""
    several = hardware.split("x ")[0].isdigit() or "GPUs" in hardware or "nodes" in hardware
    return None if several else specs.find(hardware.replace("PCIE", "PCIe"))
