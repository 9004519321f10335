"""Claims on one machine's rows: files made so that each measurable claim is CONFIRMED, and others that refute it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.claims import CLAIMS, Answer, Verdict, judge
from analysis.load import load
from analysis.published import load_published
from kernels import shapes
from kernels.specs import all_specs
from tests.analysis.synthetic import Planted, case, document, figure19_document, row, write

LLAMA = shapes.find("llama-3-8b")
PEAK = next(spec.bf16_flops for spec in all_specs() if spec.name == "A100-40GB")
MACHINE = "NVIDIA A100-SXM4-40GB, PCIe 4 x16, driver 580.65"
JITTER = (0.999, 1.0, 1.001)
Document = dict[str, Any]


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return load_published()


def judged(
    folder: Path, published: pd.DataFrame, claim: str, *documents: Document, machine: str = MACHINE
) -> list[Verdict]:
    """The verdicts on one claim that come from the files."""
    frame = load([write(folder, content, f"{index}.json") for index, content in enumerate(documents)])
    claims = [replace(one, on_record=None) for one in CLAIMS if one.id == claim]
    return [verdict for verdict in judge(frame, published, claims) if verdict.machine == machine]


def rows_of(cases: Iterable[tuple[dict[str, Any], float]], **info: Any) -> Document:
    """A file of cases and their seconds, three rounds each."""
    return document([row(c, [s * j for j in JITTER], n, **info) for n, (c, s) in enumerate(cases)])


def recompute(seconds: Callable[[int], float], lengths: Iterable[int]) -> Document:
    """Recompute times of Llama-3-8B over the length."""
    return rows_of((case("llama-3-8b", seq_len=n), seconds(n)) for n in lengths)


def ceilings(tokens: int, seconds: float) -> Document:
    """One contiguous copy each way."""
    return rows_of(
        (case("llama-3-8b", seq_len=tokens, recovery="swap", method="contiguous", direction=direction), seconds)
        for direction in ("swap_out", "swap_in")
    )


def blocks(recompute_s: float, overhead_s: float = 3e-6, **options: Any) -> Document:
    """Figure 19 with 209.7 MB each way at 25 GB/s: in+out is 16.8 ms beside the copies' overhead."""
    planted = Planted(overhead_s=overhead_s, bandwidth=25e9, recompute_s=recompute_s, noise=0.001)
    return figure19_document(planted, rounds=4, **{"block_sizes": (1, 16, 32, 64, 256), **options})


def long_panel(recompute_s: float) -> Document:
    """8,192 tokens of OPT-13B at one block size; `recompute_s` is that of 256 tokens."""
    return blocks(recompute_s, seq_lens=(8192,), block_sizes=(256,))


def loop(overhead_s: float) -> Document:
    """Swap in by a loop of copies, with the descriptors and bytes that a plan of Llama-3-8B has."""
    rows = []
    for tokens in (256, 1024, 4096):
        for block_size in (1, 4, 16, 64, 256):
            count, nbytes = 64 * tokens // block_size, tokens * LLAMA.kv_bytes_per_token("float16")
            how = {"method": "memcpy_loop", "layout": "layer_split", "placement": "scattered", "block_size": block_size}
            point = case("llama-3-8b", seq_len=tokens, recovery="swap", direction="swap_in", **how)
            work = {"bytes": nbytes, "descriptors": count, "fragment_bytes": nbytes // count}
            work |= {"descriptors_merged": count, "flops": None}
            wall = [(count * overhead_s + nbytes / 25e9) * j for j in JITTER]
            clocks = {"wall_s": wall, "issue_s": [1e-6] * 3, "device_s": wall}
            rows.append(row(point, wall, len(rows), work=work, clocks=clocks))
    return document(rows)


def copies(both_s: float) -> Document:
    """As many bytes one way in 10 ms, and half of them each way at once in `both_s`."""
    times = {"swap_out": 0.010, "swap_in": 0.0102, "both": both_s}
    axes = {"recovery": "copy", "method": "contiguous", "fragment_bytes": 1 << 20, "fragments": 256}
    work = {"bytes": 256 << 20, "descriptors": 1, "fragment_bytes": 256 << 20, "descriptors_merged": 1, "flops": None}
    return rows_of(((case("llama-3-8b", direction=d, **axes), s) for d, s in times.items()), work=work)


def by_block_size(slope: float) -> Document:
    """Recompute timed at several block sizes."""
    return rows_of((case(block_size=size), 0.03 * (1 + slope * n)) for n, size in enumerate((1, 16, 256)))


PEAK_S = {n: LLAMA.prefill_flops(n) / PEAK for n in (64, 128, 256, 512, 1024)}
SHORT = (64, 128, 256, 512)
LONG = (4096, 8192, 16384, 32768, 65536)
B, A = "at-most-20-percent-b", "at-most-20-percent-a"
MEASURABLE = {  # claim: (a file that confirms it, a file that refutes it)
    "round-trip-34-ms": (ceilings(4096, 0.017), ceilings(4096, 0.0208)),
    "one-way-34-ms-at-8k": (ceilings(8192, 0.034), ceilings(8192, 0.0416)),
    "small-copies-pay-fixed-cost": (loop(3e-6), loop(0.0)),
    "short-prefills-memory-bound": (recompute(lambda n: 0.01, SHORT), recompute(lambda n: 1e-4 * n, SHORT)),
    "wall-clock-below-peak": (
        recompute(lambda n: 0.5 * PEAK_S[n], SHORT),
        recompute(lambda n: 2.6 * PEAK_S[n], SHORT),
    ),
    "never-reverses": (blocks(0.010), blocks(0.5, overhead_s=0)),
    "converge-at-large-blocks": (blocks(0.017), blocks(0.040)),
    "swap-can-win-at-8k": (long_panel(0.040), long_panel(0.005)),
    "quadratic-growth": (recompute(lambda n: 1e-9 * n * n, LONG), recompute(lambda n: 1e-5 * n, LONG)),
    "recompute-flat-over-blocks": (by_block_size(0.01), by_block_size(0.2)),
    "recompute-wins-at-small-blocks": (blocks(0.017), blocks(0.5)),
    "swap-wins-at-large-blocks": (blocks(0.030), blocks(0.010)),
    "small-blocks-collapse-swap": (blocks(0.017), blocks(0.017, overhead_s=1e-8)),
    "comparable-at-16-to-64": (blocks(0.018, overhead_s=5e-7), blocks(0.1)),
    A: (blocks(0.003), blocks(0.017)),
    f"{A}-x0.9": (blocks(0.0036), blocks(0.004)),
    B: (blocks(0.0195), blocks(0.022)),
    f"{B}-x0.9": (blocks(0.022), blocks(0.026)),
}


def test_every_claim_with_rows_of_a_machine_is_tried_here() -> None:
    others = {
        "ridge-156",
        "marginal-cost-in-batch",
        "swap-blocks-the-gpu",
        "three-preemptions",
    }  # test_claims_recoveries
    assert {claim.id for claim in CLAIMS if claim.on_machine} == {*MEASURABLE, "swap-takes-the-link", *others}


@pytest.mark.parametrize("claim", MEASURABLE)
@pytest.mark.parametrize("expected", [Answer.CONFIRMED, Answer.REFUTED])
def test_measurable_claims(tmp_path: Path, published: pd.DataFrame, claim: str, expected: Answer) -> None:
    verdicts = judged(tmp_path, published, claim, MEASURABLE[claim][expected is Answer.REFUTED])
    found = [v for v in verdicts if v.verdict is not Answer.NOT_TESTED]
    assert {v.verdict for v in found} == {expected}, [v.because for v in verdicts]
    for verdict in found:
        assert verdict.origin == f"measured ({MACHINE})"
        assert verdict.found is not None
        assert verdict.interval is not None or verdict.unit == "tokens"  # a length has no interval


def test_the_link_depends_on_the_other_copy(tmp_path: Path, published: pd.DataFrame) -> None:
    (exclusive,) = judged(tmp_path, published, "swap-takes-the-link", copies(0.010))
    assert exclusive.verdict is Answer.CONFIRMED
    (duplex,) = judged(tmp_path, published, "swap-takes-the-link", copies(0.00575))
    assert duplex.verdict is Answer.DEPENDS
    assert duplex.found == pytest.approx(1.74, abs=0.01)


def test_the_papers_own_case_is_judged_apart(tmp_path: Path, published: pd.DataFrame) -> None:
    """OPT-13B at 256 tokens holds, Llama-3-8B does not: two verdicts, and no average of them."""
    content = blocks(0.0195, models=("opt-13b", "llama-3-8b"))
    own, others = judged(tmp_path, published, B, content)
    assert (own.verdict, others.verdict) == (Answer.CONFIRMED, Answer.REFUTED)
    assert "opt-13b" in own.where
    assert "llama-3-8b" in others.where
    (alone, missing) = judged(tmp_path, published, B, blocks(0.0195, models=("llama-3-8b",)))
    assert alone.verdict is Answer.REFUTED
    assert missing.verdict is Answer.NOT_TESTED
    assert "sweep figure19" in missing.because


def test_panels_that_disagree_name_the_axis(tmp_path: Path, published: pd.DataFrame) -> None:
    content = blocks(0.0195, models=("opt-13b", "llama-3-8b"))
    (mixed,) = judged(tmp_path, published, "converge-at-large-blocks", content)
    assert mixed.verdict is Answer.DEPENDS
    assert "on model (holds for opt-13b; not for llama-3-8b)" in mixed.because


def test_an_interval_across_the_limit_decides_nothing(tmp_path: Path, published: pd.DataFrame) -> None:
    planted = Planted(overhead_s=3e-6, bandwidth=25e9, recompute_s=0.0173, noise=0.2)
    (found,) = judged(tmp_path, published, "never-reverses", figure19_document(planted, rounds=6))
    assert found.verdict is Answer.DEPENDS
    assert "more rounds" in found.because


def test_another_link_is_not_tested_on_pcie_4(tmp_path: Path, published: pd.DataFrame) -> None:
    content = ceilings(4096, 0.0106)
    content["machine_info"] = content["machine_info"] | {"link": {"pcie_generation": 5, "pcie_width": 16}}
    frame = load([write(tmp_path, content)])
    claims = [claim for claim in CLAIMS if claim.id == "round-trip-34-ms"]
    (found,) = [v for v in judge(frame, published, claims) if "PCIe 5" in v.machine]
    assert found.verdict is Answer.NOT_TESTED
    assert "PCIe 4.0" in found.because


def test_suspect_rows_are_mentioned(tmp_path: Path, published: pd.DataFrame) -> None:
    content = blocks(0.010)
    content["benchmarks"][3]["extra_info"]["suspect"] = ["clocks held down"]
    (found,) = judged(tmp_path, published, "never-reverses", content)
    assert "suspect" in found.because
