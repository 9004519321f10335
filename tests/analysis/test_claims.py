"""Claims on arithmetic and published rows alone: hand-worked values, and a verdict with a reason for each."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from analysis.claim_types import answer
from analysis.claims import CLAIMS, Answer, Verdict, judge
from analysis.claims_arithmetic import attention_share, intensity, ridge, spec
from analysis.claims_published import block_pairs, large_copy_pairs, served_pairs
from analysis.load import load
from analysis.published import load_published
from analysis.tables_claims import claims_table, claims_values
from kernels import shapes
from tests.analysis.synthetic import A100, CPU, figure19_document, write

LLAMA = shapes.find("llama-3-8b")


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return load_published()


@pytest.fixture(scope="module")
def verdicts(published: pd.DataFrame) -> list[Verdict]:
    return judge(None, published)


def of(verdicts: list[Verdict], claim: str, origin: str = "") -> list[Verdict]:
    """The verdicts on one claim whose origin begins so."""
    found = [v for v in verdicts if v.claim.id == claim and v.origin.startswith(origin)]
    assert found, f"no verdict on {claim} from {origin}"
    return found


def test_every_claim_has_an_id_of_its_own_and_short_words() -> None:
    ids = [claim.id for claim in CLAIMS]
    assert len(ids) == len(set(ids)) >= 25
    for claim in CLAIMS:
        assert claim.words
        assert claim.source
        assert claim.test
        assert len(claim.words.split()) <= 25
        for quoted in claim.words.split('"')[1::2]:
            assert len(quoted.split()) <= 15
        assert claim.on_record or claim.needs  # something must be able to judge it


def test_every_claim_has_a_verdict_with_a_reason(verdicts: list[Verdict]) -> None:
    assert [claim for claim in CLAIMS if claim not in {v.claim for v in verdicts}] == []
    for verdict in verdicts:
        assert verdict.because.endswith("."), verdict.because
        assert len(verdict.because) > 20
        assert "nan" not in verdict.because
        if verdict.verdict is Answer.NOT_TESTED:
            assert verdict.because.startswith("Missing: ")
            assert verdict.origin == "none"
        else:
            assert verdict.origin.startswith(("arithmetic", "published ("))
        if verdict.interval and verdict.found is not None:
            assert verdict.interval.low <= verdict.found <= verdict.interval.high


@pytest.mark.parametrize(
    ("claim", "verdict", "found"),
    [
        ("kv-bytes-per-token", Answer.CONFIRMED, 128),
        ("round-trip-34-ms", Answer.CONFIRMED, 34.09),
        ("one-way-34-ms-at-8k", Answer.CONFIRMED, 34.09),
        ("ridge-156", Answer.DEPENDS, 153.0),
        ("short-prefills-memory-bound", Answer.DEPENDS, 177),
        ("wall-clock-below-peak", Answer.REFUTED, 2.63),
        ("quadratic-growth", Answer.DEPENDS, 0.133),
        ("three-preemptions", Answer.REFUTED, 3),
    ],
)
def test_arithmetic_verdicts(verdicts: list[Verdict], claim: str, verdict: Answer, found: float) -> None:
    (by_hand,) = of(verdicts, claim, "arithmetic")
    assert by_hand.verdict is verdict
    assert by_hand.found == pytest.approx(found, rel=5e-3)


def test_arithmetic_is_that_of_the_notes() -> None:
    """roofline_check.py: ridges 153, 201, 295, 206; intensity 216 to 4,411 FLOP/B; attention 13, 23 and 38 %."""
    ridges = [round(ridge(spec(name))) for name in ("A100-80GB", "A100-40GB", "H100-SXM", "H200")]
    assert ridges == [153, 201, 295, 206]
    assert [round(intensity(LLAMA, tokens)) for tokens in (256, 1024, 4096)] == [216, 679, 1510]
    assert [attention_share(LLAMA, k * 1024) for k in (8, 16, 32)] == pytest.approx([0.13, 0.235, 0.38], abs=0.005)


@pytest.mark.parametrize(
    ("claim", "source", "milliseconds"),
    [
        ("round-trip-34-ms", "published (jdh4", 20.809 + 20.769),
        ("round-trip-34-ms", "published (router-gao", 43.648 + 40.672),
        ("one-way-34-ms-at-8k", "published (jdh4", 41.618),
    ],
)
def test_34_ms_at_published_links(verdicts: list[Verdict], claim: str, source: str, milliseconds: float) -> None:
    """536,870,912 bytes at 25.8/25.85 and at 12.3/13.2 GB/s."""
    (found,) = of(verdicts, claim, source)
    assert found.verdict is Answer.REFUTED
    assert found.found == pytest.approx(milliseconds, rel=1e-3)


def test_large_copies_against_published_prefills(published: pd.DataFrame) -> None:
    """Vidur, 4,096 tokens on an A100: 304.3 ms over 41.6 ms; OPT-13B kernels, 256 tokens, slow link: 33.2 over 32.9."""
    pairs = {(p.link, p.label): p.ratio for p in large_copy_pairs(published)}
    vidur = pairs["A100-PCIE-40GB", "llama-3-8b, 4096 tokens (sum of layer parts)"]
    assert vidur == pytest.approx(304.304 / 41.578, rel=1e-3)
    opt = pairs["A100-SXM4-40GB", "opt-13b, 256 tokens (vllm 0.14.0, sum of parts)"]
    assert opt == pytest.approx(33.211 / (209.7152 / 12.3 + 209.7152 / 13.2), rel=1e-3)
    assert not any("llama.cpp" in label for _, label in pairs)


def test_blocks_against_a_published_copy_loop(published: pd.DataFrame) -> None:
    """H100, Llama-3-8B, 4,096 tokens, block 16: 32 KiB copies at 7.46 and 8.18 GB/s; prefill 79.7486 ms."""
    pairs = block_pairs(published, "llama-3-8b", 4096, (1, 16, 64))
    assert list(pairs) == [16, 64]  # 2 KiB copies were not published
    assert pairs[16].ratio == pytest.approx(79.7486 / (536.870912 / 7.46 + 536.870912 / 8.18), rel=1e-3)


def test_served_times_count_loading_twice(published: pd.DataFrame) -> None:
    """264 ms against 42 ms to load at 10K tokens, 6,850 against 310 at 100K."""
    ratios = {pair.tokens: pair.ratio for pair in served_pairs(published)}
    assert (ratios[10000], ratios[100000]) == pytest.approx((0.264 / 0.084, 6.85 / 0.62), rel=1e-3)


def test_published_rows_contradict_and_support(verdicts: list[Verdict]) -> None:
    """Large copies are not within 20 % for Llama-3-8B, and are for OPT-13B's kernels over a slow link."""
    (served,) = of(verdicts, "at-most-20-percent-b", "published (vLLM blog")
    assert served.verdict is Answer.REFUTED
    own = [v for v in of(verdicts, "at-most-20-percent-b") if "opt-13b, 256 tokens" in v.where]
    assert {v.machine: v.verdict for v in own if v.machine.startswith("A100")} == {
        "A100, link of A100-PCIE-40GB": Answer.REFUTED,
        "A100, link of A100-SXM4-40GB": Answer.DEPENDS,
    }
    assert {v.verdict for v in of(verdicts, "at-most-20-percent-a")} == {Answer.REFUTED}
    assert {v.verdict for v in of(verdicts, "small-blocks-collapse-swap")} == {Answer.CONFIRMED}
    assert {v.verdict for v in of(verdicts, "swap-wins-at-large-blocks")} == {Answer.CONFIRMED}
    assert {v.verdict for v in of(verdicts, "comparable-at-16-to-64")} == {Answer.DEPENDS}
    assert {v.verdict for v in of(verdicts, "marginal-cost-in-batch")} == {Answer.DEPENDS}
    assert min(v.found or 0 for v in of(verdicts, "swap-takes-the-link")) > 1.4


def test_the_authors_factor_shows_in_the_number(verdicts: list[Verdict]) -> None:
    (raw,) = of(verdicts, "at-most-20-percent-b", "published (vLLM blog")
    (scaled,) = of(verdicts, "at-most-20-percent-b-x0.9", "published (vLLM blog")
    assert raw.found is not None
    assert scaled.found == pytest.approx(0.9 * raw.found)


def test_version_facts_name_their_versions(verdicts: list[Verdict]) -> None:
    facts = {claim: of(verdicts, claim)[0] for claim in ("vllm-preemption-mode-flag", "vllm-swap-space-flag")}
    assert {v.verdict for v in facts.values()} == {Answer.REFUTED}
    assert [v.where for v in facts.values()] == ["vLLM >= 0.11", "vLLM >= 0.18"]
    assert of(verdicts, "vllm-swap-space-default")[0].verdict is Answer.DEPENDS


@pytest.mark.parametrize(
    ("claim", "missing"),
    [
        ("swap-blocks-the-gpu", "sweep quick, table [interference]"),
        ("recompute-flat-over-blocks", "two or more of block_size"),
        ("vllm-v1-ipc", "a serving engine"),
        ("preemption-rate-thresholds", "a serving replay"),
    ],
)
def test_what_nothing_reaches_names_what_is_missing(verdicts: list[Verdict], claim: str, missing: str) -> None:
    (found,) = of(verdicts, claim)
    assert found.verdict is Answer.NOT_TESTED
    assert missing in found.because


def test_a_cpu_judges_nothing(tmp_path: Path, published: pd.DataFrame, verdicts: list[Verdict]) -> None:
    cpu = load([write(tmp_path, figure19_document(machine=CPU, rounds=2))])
    assert claims_values(judge(cpu, published)) == claims_values(verdicts)


def test_a_machine_is_told_which_of_its_cases_are_missing(tmp_path: Path, published: pd.DataFrame) -> None:
    gpu = load([write(tmp_path, figure19_document(machine=A100, rounds=2))])
    named = [
        claim for claim in CLAIMS if claim.id in ("swap-can-win-at-8k", "marginal-cost-in-batch", "never-reverses")
    ]
    mine = {v.claim.id: v for v in judge(gpu, published, named) if "driver" in v.machine}
    assert mine["swap-can-win-at-8k"].verdict is Answer.NOT_TESTED
    assert "recompute [seq_len=8192|16384|32768] of sweep full" in mine["swap-can-win-at-8k"].because
    assert "sweep quick, table [batching]" in mine["marginal-cost-in-batch"].because
    assert mine["never-reverses"].verdict is not Answer.NOT_TESTED


def test_answers() -> None:
    assert answer([True, True]) is Answer.CONFIRMED
    assert answer([False]) is Answer.REFUTED
    assert {answer([True, False]), answer([True, None]), answer([None])} == {Answer.DEPENDS}
    with pytest.raises(ValueError, match="no outcome"):
        answer([])


def test_table_and_values_are_whole(verdicts: list[Verdict]) -> None:
    console = Console(width=100, record=True, file=None)
    with console.capture() as shown:
        console.print(claims_table(verdicts))
    text = shown.get()
    assert all(claim.id in text for claim in CLAIMS)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    assert f"{len(CLAIMS)} claims" in text
    values = json.loads(json.dumps(claims_values(verdicts), allow_nan=False))
    assert len(values) == len(verdicts)
    assert values[0]["verdict"] == "CONFIRMED"
    assert values[0]["found"] == 128
