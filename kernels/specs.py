"""Data-sheet figures of GPUs, read from `results/specs.toml`. Plain Python, like `shapes.py`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SPECS = Path(__file__).parents[1] / "results" / "specs.toml"
_BF16_RATE = ("bfloat16", "float16")  # every listed GPU multiplies both at the same rate


@dataclass(frozen=True)
class GpuSpec:
    """One GPU's data sheet.

    Attributes
    ----------
    bf16_flops : float
        Dense BF16 (and FP16) matrix rate, FLOP/s.
    hbm_bytes_s : float
        Memory bandwidth, bytes/s.
    link_bytes_s : float
        Nominal rate of the link to the host, bytes/s a direction.
    source : str
        The document the figures come from.
    """

    name: str
    match: tuple[str, ...]
    bf16_flops: float
    hbm_bytes_s: float
    link: str
    link_bytes_s: float
    source: str


@cache
def all_specs() -> tuple[GpuSpec, ...]:
    """Every GPU in the file, in its order."""
    entries = tomllib.loads(SPECS.read_text(encoding="utf-8"))["gpu"]
    return tuple(GpuSpec(**(entry | {"match": tuple(entry["match"])})) for entry in entries)


def find(gpu_name: str) -> GpuSpec | None:
    """The data sheet of the GPU that the driver calls `gpu_name`; None if none is listed, or for a MIG part."""
    words = set(re.split(r"[\s-]+", gpu_name))
    if "MIG" in words:
        return None
    return next((spec for spec in all_specs() if words.issuperset(spec.match)), None)


def peak_flops(gpu_name: str, dtype: str) -> float | None:
    """Dense matrix rate in FLOP/s for MFU; None where the data sheet is not known or gives none for `dtype`."""
    spec = find(gpu_name)
    return spec.bf16_flops if spec and dtype in _BF16_RATE else None
