"""Where a prefill turns from memory- to compute-bound: its time over the tokens, beside what the machine can do."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis.intervals import Estimate
from analysis.recovery_rows import (
    Reached,
    Subject,
    cases,
    fact,
    groups,
    is_suspect,
    per_second,
    reach,
    seconds,
)
from kernels.specs import find

TURNED = 2.0  # times the time of the shortest prefill
SHEET_DTYPES = ("bfloat16", "float16")  # whose peak a data sheet's BF16 figure is


@dataclass(frozen=True, eq=False)
class RidgePoint:
    """One prefill of `tokens` tokens in all.

    Attributes
    ----------
    time, flops_s : Estimate
        Seconds; FLOP/s.
    flop_per_byte : float or None
        FLOPs over the bytes that must cross device memory at least: weights once, K and V written and read.
    mfu, mfu_gemm : float or None
        Of the data sheet's peak; of the largest rate of a matrix product in the same session.
    """

    tokens: int
    time: Estimate
    flops_s: Estimate
    flop_per_byte: float | None
    mfu: float | None
    mfu_gemm: float | None
    suspect: bool


@dataclass(frozen=True, eq=False)
class Ridge:
    """One model on one machine.

    Attributes
    ----------
    points : tuple of RidgePoint
        Tokens ascending.
    peak_flops_s, memory_bytes_s : Estimate or None
        Largest measured rate of a square matrix product of this element type, and of a copy within device memory
        (bytes read and bytes written).
    flop_per_byte : Estimate or None
        The measured ridge: `peak_flops_s` / `memory_bytes_s`.
    sheet_flop_per_byte : float or None
        The data sheet's, for 16-bit elements.
    roofline_tokens : Reached or None
        Where least bytes / bandwidth and FLOPs / peak, both as measured, take equally long: what a perfect prefill
        would turn at.
    turn_tokens : Reached or None
        Where the measured time is `TURNED` times that of the shortest prefill, which has `floor_tokens` tokens.
    """

    subject: Subject
    points: tuple[RidgePoint, ...]
    peak_flops_s: Estimate | None
    memory_bytes_s: Estimate | None
    flop_per_byte: Estimate | None
    sheet_flop_per_byte: float | None
    roofline_tokens: Reached | None
    turn_tokens: Reached | None

    @property
    def floor_tokens(self) -> int:
        """Tokens of the shortest prefill."""
        return self.points[0].tokens


def ridge(frame: pd.DataFrame) -> list[Ridge]:
    """One `Ridge` a machine, model, element type and number of layers.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `analysis.load.load`.
    """
    rows = frame[frame["recovery"] == "ridge"]
    return [_ridge(subject, group, rows) for subject, _, _, group in groups(rows[rows["probe"] == "prefill"])]


def peak_flops_s(frame: pd.DataFrame, machine: str, dtype: str) -> Estimate | None:
    """Largest measured rate of a square matrix product, FLOP/s; None where none was timed."""
    return _best(frame[(frame["probe"] == "gemm") & (frame["machine"] == machine) & (frame["dtype"] == dtype)], "flops")


def memory_bytes_s(frame: pd.DataFrame, machine: str) -> Estimate | None:
    """Largest measured rate of a copy within device memory, bytes read and written a second; None where none was."""
    rows = frame[(frame["probe"] == "memory") & (frame["machine"] == machine)]
    return _best(rows.assign(moved=2 * rows["memory_bytes"]), "moved")


def _best(rows: pd.DataFrame, work: str) -> Estimate | None:
    rates = [per_second(float(case[work].iloc[0]), seconds(case)) for _, case in cases(rows, work)]
    return max(rates, key=lambda rate: rate.value, default=None)


def _ridge(subject: Subject, group: pd.DataFrame, rows: pd.DataFrame) -> Ridge:
    points = tuple(_point(case) for _, case in cases(group, "seq_len"))
    peak, memory = peak_flops_s(rows, subject.machine, subject.dtype), memory_bytes_s(rows, subject.machine)
    measured = peak / memory if peak and memory else None
    spec = find(subject.hardware.split(",")[0]) if subject.dtype in SHEET_DTYPES else None
    tokens = [float(point.tokens) for point in points]
    densities = [Estimate(point.flop_per_byte) for point in points if point.flop_per_byte]
    shares = [point.time / points[0].time for point in points]
    several, dense = len(points) > 1, len(densities) == len(points)
    return Ridge(
        subject,
        points,
        peak,
        memory,
        measured,
        spec.bf16_flops / spec.hbm_bytes_s if spec else None,
        reach(tokens, densities, measured, log=True) if measured and several and dense else None,
        reach(tokens, shares, Estimate(TURNED), log=True) if several else None,
    )


def _point(case: pd.DataFrame) -> RidgePoint:
    first, time = case.iloc[0], seconds(case)
    return RidgePoint(
        int(first["seq_len"]) * int(first["batch"]),
        time,
        per_second(float(first["flops"]), time),
        fact(case, "flop_per_byte"),
        fact(case, "mfu"),
        fact(case, "mfu_gemm"),
        is_suspect(case),
    )
