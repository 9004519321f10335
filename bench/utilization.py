"""How much of what the device can do at most a case reaches: of its data sheet, and of a product measured here."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.measure import best_seconds
from kernels.device import Device, DoesNotFit
from kernels.peaks import prepare_gemm
from kernels.specs import peak_flops

# Rows of square matrices, each tried only if the one before it was over soon: 0.3 s in all.
GEMM_SIZES = {"cuda": (4096, 8192), "cpu": (256, 512, 1024)}
SOON_S = 0.008


def fastest_gemm(device: Device, dtype: str) -> float | None:
    """FLOP/s of the fastest of a few square matrix products; None if the device has no room for any."""
    rates = []
    for n in GEMM_SIZES[device.backend]:
        try:
            gemm = prepare_gemm(device, dtype, n)
        except DoesNotFit:
            break
        seconds = best_seconds(gemm.issue, device)
        rates.append(gemm.flops / seconds)
        if seconds > SOON_S:
            break
    return max(rates, default=None)


def utilization(row: dict[str, Any], device: Device, gemm_flops: float | None = None) -> dict[str, float | None]:
    """A row's FLOP/s by the median of its wall clock, as part of the data sheet's rate and of `gemm_flops`.

    None where there is no such rate: of the data sheet on a CPU, for a GPU that is not listed, for float32.
    """
    rate = row["work"]["flops"] / median(row["clocks"]["wall_s"])
    facts = device.facts()
    sheet = peak_flops(facts["name"], row["case"]["dtype"]) if facts else None
    return {"mfu": sheet and rate / sheet, "mfu_gemm": gemm_flops and rate / gemm_flops, "peak_gemm_flops": gemm_flops}
