"""Claims on the rows of what lies between swap and recompute: each confirmed, refuted and left open by planted rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.claims import CLAIMS, Answer
from analysis.published import load_published
from tests.analysis import synthetic as planted
from tests.analysis.synthetic import A100, CPU, document
from tests.analysis.test_claims_measured import MACHINE, judged

Row = dict[str, Any]
OTHER_GPU = A100 | {"gpu": {"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 85_000_000_000}}


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return load_published()


def probes(flops_s: float, bytes_s: float = 1.6e12) -> list[Row]:
    return [planted.ridge_gemm_row(8192, flops_s), planted.ridge_memory_row(1 << 30, bytes_s)]


def prefills(floor_s: float, a_token_s: float) -> list[Row]:
    tokens = (1, 16, 64, 128, 256)
    return [planted.ridge_prefill_row(n, max(floor_s, n * a_token_s)) for n in tokens]


def joins(a_token_s: float, *more: float) -> list[Row]:
    """64 tokens alone in 10 ms; into a prefill of 256 tokens, and of 512 if there is more, at so much a token."""
    rows = [planted.batching_row(64, 0.010)]
    for size, seconds in zip((256, 512), (a_token_s, *more), strict=False):
        rows.append(planted.batching_row(64, 0.020 + 64 * seconds, 0.020, company="prefill", company_size=size))
    return rows


def beside(*slower: float) -> list[Row]:
    """A decode step of 10 ms beside swaps of 10 ms, one a step, by as many methods; and the swap itself, disturbed."""
    methods = ("memcpy_batch", "direct_kernel")
    rows = [planted.interference_row(0.010 + s, 0.010, method=m) for s, m in zip(slower, methods, strict=False)]
    return [*rows, planted.interference_row(0.050, 0.010, timed="swap")]


def again(times: float, *more: float) -> list[Row]:
    """Once in 10 ms, three times in `times` of it; with more, copied by another method too."""
    rows = [planted.preemptions_row(k, 0.050 * k) for k in (1, 3)]
    for method, factor in zip(("memcpy_batch", "memcpy_loop"), (times, *more), strict=False):
        for count, seconds in ((1, 0.010), (3, 0.010 * factor)):
            rows.append(planted.preemptions_row(count, seconds, "swap", method=method))
    return rows


def lengths(*seconds: float) -> list[Row]:
    tokens = (8192, 16384, 32768, 65536, 131072)
    return [planted.recompute_row(s, seq_len=n) for n, s in zip(tokens, seconds, strict=False)]


ANSWERS = {  # claim: rows that confirm it, refute it, and leave it open
    "ridge-156": (probes(250e12), probes(200e12), probes(262.08e12)),
    "short-prefills-memory-bound": (prefills(0.1, 1e-4), prefills(0, 1e-4), prefills(0.010, 1e-4)),
    "marginal-cost-in-batch": (joins(0.003 / 64), joins(0.009 / 64), joins(0.003 / 64, 0.009 / 64)),
    "swap-blocks-the-gpu": (beside(0.010), beside(0.001), beside(0.010, 0.001)),
    "three-preemptions": (again(1.1), again(3.0), again(1.1, 3.0)),
    "quadratic-growth": (lengths(1, 4, 16), lengths(1, 2, 4, 8, 16), lengths(1, 2, 8)),
}


@pytest.mark.parametrize("claim", ANSWERS)
@pytest.mark.parametrize("expected", [Answer.CONFIRMED, Answer.REFUTED, Answer.DEPENDS])
def test_verdicts(tmp_path: Path, published: pd.DataFrame, claim: str, expected: Answer) -> None:
    rows = ANSWERS[claim][[Answer.CONFIRMED, Answer.REFUTED, Answer.DEPENDS].index(expected)]
    [found] = judged(tmp_path, published, claim, document(rows))
    assert found.verdict is expected, found.because
    assert found.origin == f"measured ({MACHINE})"
    assert found.found is not None
    assert found.interval is not None
    assert found.because.endswith(".")


def only(rows: Iterable[Row], folder: Path, published: pd.DataFrame, claim: str) -> Any:
    """The one verdict of a file with these rows."""
    [found] = judged(folder, published, claim, document(list(rows)))
    return found


def test_the_measured_ridge_stands_beside_the_data_sheets(tmp_path: Path, published: pd.DataFrame) -> None:
    found = only(probes(250e12), tmp_path, published, "ridge-156")
    assert found.found == pytest.approx(156.25)
    assert "250 TFLOP/s and copies within device memory 1,600 GB/s, which makes 156" in found.because
    assert "the data sheet's 312 TFLOP/s and 1,555 GB/s make 201" in found.because


def test_the_ridge_of_another_gpu_is_told_and_not_judged(tmp_path: Path, published: pd.DataFrame) -> None:
    machine = "NVIDIA H100 80GB HBM3, PCIe 4 x16, driver 580.65"
    [found] = judged(tmp_path, published, "ridge-156", document(probes(600e12, 3e12), OTHER_GPU), machine=machine)
    assert found.verdict is Answer.NOT_TESTED
    assert "about an A100" in found.because
    assert "makes 200 FLOP/byte" in found.because


def test_where_a_prefill_turns_is_named_twice(tmp_path: Path, published: pd.DataFrame) -> None:
    """10 ms up to 100 tokens, 20 ms at 200; the ridge of 125 FLOP/byte lies at about 130 tokens of Llama-3-8B."""
    found = only(prefills(0.010, 1e-4) + probes(200e12), tmp_path, published, "short-prefills-memory-bound")
    assert found.found == pytest.approx(200, rel=1e-3)
    assert "tokens at twice the time of 1 token: 200; tokens at the ridge, by the measured peak" in found.because
    assert "and bandwidth: 13" in found.because
    assert "ridge" not in only(prefills(0.010, 1e-4), tmp_path, published, "short-prefills-memory-bound").because


def test_recompute_rows_do_as_well(tmp_path: Path, published: pd.DataFrame) -> None:
    """Either kind of rows judges; a machine with neither is told of both."""
    rows = [planted.recompute_row(0.01, seq_len=n) for n in (64, 128, 256)]
    assert only(rows, tmp_path, published, "short-prefills-memory-bound").verdict is Answer.CONFIRMED
    missing = only(probes(2e14), tmp_path, published, "short-prefills-memory-bound")
    assert missing.verdict is Answer.NOT_TESTED
    assert "or ridge [probe=prefill, two or more of seq_len] of sweep quick, table [ridge]" in missing.because


def test_what_joins_is_named_with_what_rides_free(tmp_path: Path, published: pd.DataFrame) -> None:
    decode = planted.batching_row(64, 0.0105, 0.010, company="decode", company_size=16)
    found = only([*joins(0.003 / 64, 0.009 / 64), decode], tmp_path, published, "marginal-cost-in-batch")
    assert found.found == pytest.approx(0.9, rel=1e-3)
    assert "cost 0.30 to 0.90 of what they cost alone, half or less in 1 of 2 cases (64 into 256)" in found.because
    assert "on a decode step of 16 sequences with 256 tokens each at least 64 tokens ride free" in found.because


def test_joining_without_its_time_alone_is_not_judged(tmp_path: Path, published: pd.DataFrame) -> None:
    found = only(joins(0.003 / 64)[1:], tmp_path, published, "marginal-cost-in-batch")
    assert found.verdict is Answer.NOT_TESTED
    assert "lack a part" in found.because


def test_a_step_that_goes_on_beside_a_swap_and_its_cost(tmp_path: Path, published: pd.DataFrame) -> None:
    found = only(beside(0.010, 0.001), tmp_path, published, "swap-blocks-the-gpu")
    assert found.found == pytest.approx(1)
    assert found.unit == "s lost / s of swap"
    assert "2.00 times as long beside a swap in by memcpy_batch" in found.because
    assert "they take turns in 1 of 2 cases (memcpy_batch beside a decode step of 64" in found.because


def test_each_policy_is_judged_apart_and_its_copies_counted(tmp_path: Path, published: pd.DataFrame) -> None:
    rows = again(3.0) + [planted.preemptions_row(k, s, "swap_kept") for k, s in ((1, 0.010), (3, 0.020))]
    swap, kept = judged(tmp_path, published, "three-preemptions", document(rows))
    assert swap.found == pytest.approx(3)
    assert kept.found == pytest.approx(2)
    assert "with 3 writes and 3 reads of 0.906 GB in all: 30 ms; recompute takes 150 ms" in swap.because
    assert "swap_kept take 2.00 times one" in kept.because
    assert "of 0.621 GB" in kept.because


@pytest.mark.parametrize("claim", [claim for claim in ANSWERS if claim != "quadratic-growth"])
def test_suspect_rows_are_mentioned(tmp_path: Path, published: pd.DataFrame, claim: str) -> None:
    rows = [row | {"extra_info": row["extra_info"] | {"suspect": ["another process"]}} for row in ANSWERS[claim][1]]
    assert "some of these rows are suspect" in only(rows, tmp_path, published, claim).because


@pytest.mark.parametrize(
    ("claim", "table"),
    [
        ("ridge-156", "sweep quick, table [ridge]"),
        ("short-prefills-memory-bound", "sweep quick, table [ridge]"),
        ("marginal-cost-in-batch", "sweep quick, table [batching]"),
        ("swap-blocks-the-gpu", "sweep quick, table [interference]"),
        ("three-preemptions", "sweep quick, table [preemptions]"),
        ("quadratic-growth", "sweep full, table [recompute]"),
    ],
)
def test_what_is_missing_is_named_by_its_table(tmp_path: Path, published: pd.DataFrame, claim: str, table: str) -> None:
    found = only([planted.resume_row(0.06)], tmp_path, published, claim)
    assert found.verdict is Answer.NOT_TESTED
    assert table in found.because
    assert all("not in the suite yet" not in need.text for one in CLAIMS if one.id == claim for need in one.needs)


def test_a_cpu_judges_none_of_them(tmp_path: Path, published: pd.DataFrame) -> None:
    for index, (claim, (confirms, _, _)) in enumerate(ANSWERS.items()):
        folder = tmp_path / str(index)
        folder.mkdir()
        assert judged(folder, published, claim, document(confirms, CPU), machine="CPU: Xeon 2.2 GHz") == []
