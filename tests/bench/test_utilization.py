from __future__ import annotations

from typing import Any

import pytest

from bench import rows, utilization
from bench.cases import Case
from bench.utilization import fastest_gemm
from kernels.device import DoesNotFit, open_device
from kernels.peaks import Gemm, prepare_gemm

CPU = open_device("cpu")


def test_the_fastest_product_counts_and_a_slow_one_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    took = {256: 1e-3, 512: 1e-2, 1024: 1e-9}
    tried: list[int] = []

    def seconds(issue: Any, device: object) -> float:
        tried.append(len(issue.__self__.product))
        return took[tried[-1]]

    monkeypatch.setattr(utilization, "best_seconds", seconds)
    assert fastest_gemm(CPU, "float32") == 2 * 256**3 / 1e-3
    assert tried == [256, 512]


def test_products_without_room_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(device: Any, dtype: str, n: int) -> Gemm:
        if n > largest:
            raise DoesNotFit("no room")
        return prepare_gemm(device, dtype, n)

    monkeypatch.setattr(utilization, "prepare_gemm", prepare)
    monkeypatch.setattr(utilization, "best_seconds", lambda issue, device: 1e-3)
    largest = 256
    assert fastest_gemm(CPU, "float32") == 2 * 256**3 / 1e-3
    largest = 0
    assert fastest_gemm(CPU, "float32") is None


class Gpu:
    def __init__(self, name: str) -> None:
        self._name = name

    def facts(self) -> dict[str, Any]:
        return {"name": self._name}


def row(wall_s: list[float], **case: Any) -> dict[str, Any]:
    fields = {"seq_len": 1024, "model": "m", "dtype": "bfloat16", "layers_timed": 1, "layers_model": 1} | case
    clocks = {"wall_s": wall_s, "issue_s": [0.2, 0.2, 0.2], "device_s": [1.0, 1.0, 1.0]}
    work = {"flops": 156 * 10**12, "bytes": None}
    return {
        "case": Case(**({"recovery": "recompute"} | fields)).as_dict(),
        "clocks": clocks,
        "work": work,
        "detail": {},
        "baseline": None,
    }


def test_shares_by_hand() -> None:
    """156 TFLOP in a median of 1 s: half of an A100's 312, three fifths of a measured 260."""
    a100: Any = Gpu("NVIDIA A100-SXM4-80GB")
    done = utilization.utilization(row([9.0, 1.0, 0.5]), a100, 260e12)
    assert done == {"mfu": 0.5, "mfu_gemm": pytest.approx(0.6), "peak_gemm_flops": 260e12}


@pytest.mark.parametrize("device", [CPU, Gpu("NVIDIA Unheard Of")])
def test_without_a_sheet_and_a_product_there_is_no_share(device: Any) -> None:
    nothing = {"mfu": None, "mfu_gemm": None, "peak_gemm_flops": None}
    assert utilization.utilization(row([1.0]), device) == nothing
    a100: Any = Gpu("NVIDIA A100-SXM4-80GB")
    assert utilization.utilization(row([1.0], dtype="float32"), a100) == nothing


@pytest.mark.parametrize(
    ("case", "noted"),
    [
        ({}, True),
        ({"recovery": "ridge", "probe": "prefill", "seq_len": 512}, True),
        ({"seq_len": 511}, False),
        ({"cached_tokens": 528}, False),
        ({"recovery": "ridge", "probe": "gemm", "seq_len": None, "matrix": 4096}, False),
    ],
)
def test_the_line_says_where_a_prefill_waits_for_the_host(case: dict[str, Any], noted: bool) -> None:
    timed = row([1.0, 1.0, 1.0], **case)
    note = "issuing takes 20% of the device's time"
    assert (note in rows.line(timed, runs_at_once=False)) is noted
    assert note not in rows.line(timed)
    timed["clocks"]["issue_s"] = [0.1, 0.1, 0.1]
    assert "issuing" not in rows.line(timed, runs_at_once=False)
