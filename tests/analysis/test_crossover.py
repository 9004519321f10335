from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from analysis.cost_model import BadFit, CopyFit, PrefillFit
from analysis.crossings import Curves
from analysis.crossover import (
    Setting,
    break_even_intensity,
    break_even_link,
    crossover,
    crossover_batch,
    crossover_block_size,
    crossover_link,
    crossover_measured,
    crossover_preemptions,
    crossover_tokens,
    regret_table,
)
from analysis.intervals import Estimate
from analysis.rules import InferCept, Mooncake, Threshold, mooncake_bytes_per_flop
from kernels import shapes
from tests.analysis.planted import SEEDS, Machine, setting

L8, L70, OPT = (shapes.find(name) for name in ("llama-3-8b", "llama-3-70b", "opt-13b"))
A100, H100 = 312e12, 989.4e12
MACHINE = Machine()


def planted(swap: float, recompute: float) -> float:
    return math.log(recompute / swap)


def curves(ratio: list[float], noise: float = 0.0) -> Curves:
    """Recompute is a polynomial of log10(x) above or below a swap of 1 s; draws shift it."""
    draws = np.random.default_rng(0).standard_normal(100) * noise

    def at(x: float) -> tuple[Estimate, Estimate]:
        y = float(np.polyval(ratio, math.log10(x)))
        return Estimate(1.0), Estimate(math.exp(y), np.exp(y + draws) if noise else None)

    return at


def flat(k_out: float, k_in: float, recompute_s: float) -> Setting:
    """Full-rate copies of Llama-3-8B against a recompute of `recompute_s` at any length."""
    return Setting(L8, "bfloat16", None, PrefillFit(0, recompute_s, 0, 0), CopyFit(0, 0, k_in), CopyFit(0, 0, k_out))


def test_planted_lengths_are_within_the_interval() -> None:
    """Two crossings: below the first recompute is held up by the floor, above the second by attention."""
    truth = [
        brentq(lambda x: planted(2 * MACHINE.swap_s(x, 16), MACHINE.prefill_s(x)), low, high)
        for low, high in ((64, 600), (600, 20_000))
    ]
    inside = np.zeros(2)
    for seed in SEEDS:
        found = crossover_tokens(setting(seed), 16)
        assert [c.cheaper_below for c in found.crossings] == ["swap", "recompute"]
        for place, (crossing, true) in enumerate(zip(found.crossings, truth, strict=True)):
            assert crossing.interval is not None
            assert crossing.at == pytest.approx(true, rel=0.2)
            inside[place] += crossing.interval.low <= true <= crossing.interval.high
    assert (inside >= 18).all(), inside


def test_planted_block_sizes_and_links_are_within_the_interval() -> None:
    tokens = 2048
    block = brentq(lambda b: planted(2 * MACHINE.swap_s(tokens, b), MACHINE.prefill_s(tokens)), 4, 256)

    def at_rate(b: float) -> float:
        return planted(2 * replace(MACHINE, bytes_s=b).swap_s(tokens, 64), MACHINE.prefill_s(tokens))

    link = brentq(at_rate, 1e9, 20e9)
    inside = np.zeros(2)
    for seed in SEEDS:
        answers = crossover_block_size(setting(seed), tokens), crossover_link(setting(seed), tokens, 64)
        for place, (answer, true) in enumerate(zip(answers, (block, link), strict=True)):
            [crossing] = answer.crossings
            assert (crossing.cheaper_below, crossing.cheaper_above) == ("recompute", "swap")
            assert crossing.interval is not None
            inside[place] += crossing.interval.low <= true <= crossing.interval.high
    assert (inside >= 18).all(), inside


def test_no_crossing_is_an_answer() -> None:
    found = crossover(curves([0.0, 1.0], noise=0.1), "tokens", 1, 1000)
    assert found.crossings == ()
    assert (found.always, found.certainty) == ("swap", 1.0)
    assert found.text == "never within 1..1000 tokens: swap always faster"
    assert crossover(curves([-1.0]), "tokens", 1, 10).always == "recompute"
    assert crossover(curves([0.0]), "tokens", 1, 10).text.endswith("equally fast")


def test_two_crossings_are_both_listed() -> None:
    found = crossover(curves([1.0, -3.0, 2.0]), "tokens", 1.5, 5000)  # (u - 1)(u - 2)
    assert [c.at for c in found.crossings] == pytest.approx([10, 100])
    assert [(c.cheaper_below, c.cheaper_above) for c in found.crossings] == [
        ("swap", "recompute"),
        ("recompute", "swap"),
    ]
    assert found.always is None
    assert found.text.count("at ") == 2


@pytest.mark.parametrize("end", [10.0, 1000.0])
def test_a_crossing_at_the_end_of_the_range(end: float) -> None:
    low, high = (end, 1e4) if end == 10 else (1, end)
    [crossing] = crossover(curves([1.0, -math.log10(end)]), "tokens", low, high).crossings
    assert crossing.at == pytest.approx(end)
    assert "unknown" in (crossing.cheaper_below, crossing.cheaper_above)
    assert "swap" in (crossing.cheaper_below, crossing.cheaper_above) or end == 1000


def test_an_interval_that_leaves_the_range_says_so() -> None:
    found = crossover(curves([1.0, -1.1], noise=0.3), "tokens", 10, 1000)  # crosses at 12.6, draws from 3 to 50
    [crossing] = found.crossings
    assert crossing.interval is not None
    assert crossing.open_low
    assert not crossing.open_high
    assert crossing.interval.low == pytest.approx(10)
    assert 0.4 < crossing.share < 0.8
    assert found.certainty == pytest.approx(crossing.share)
    assert "[below 10 to " in found.text


def test_a_range_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="0 < low < high"):
        crossover(curves([1.0]), "tokens", 10, 10)
    with pytest.raises(ValueError, match="two or more"):
        crossover_measured([(1, Estimate(1.0), Estimate(2.0))], "tokens")


def test_measured_medians_are_interpolated_in_logarithms() -> None:
    points = [
        (x, Estimate(1.0), Estimate(y, y * np.array([0.9, 1.0, 1.1]))) for x, y in ((1, 0.25), (16, 1.0), (64, 4))
    ]
    [tie] = crossover_measured(points, "block size").crossings
    assert tie.at == pytest.approx(16)
    [between] = crossover_measured([points[0], points[2]], "block size").crossings
    assert between.at == pytest.approx(8)
    assert between.interval is not None
    assert between.interval.low < 8 < between.interval.high


def test_refused_fits_cross_nothing() -> None:
    refused = replace(flat(25e9, 25e9, 0.4), prefill=PrefillFit(0, 1, 0, 0, refusal="misses held-out cases"))
    with pytest.raises(BadFit, match="held-out"):
        crossover_tokens(refused, 16)


def test_an_answer_beyond_the_data_says_so() -> None:
    assert crossover_tokens(setting(0), 16).notes == ()
    assert "prefill is fitted to 256..8,192 tokens, not to 64" in crossover_tokens(setting(0), 256, 64, 300).notes
    [into, out] = crossover_link(setting(0), 2048, 1).notes
    assert into == "swap in is fitted to 8,192..524,288 bytes a copy, not to 2,048"
    assert out.startswith("swap out")


def test_break_even_links_of_the_notes() -> None:
    """`roofline_check.py`: GB/s a direction at half of peak; round trip, then one way."""
    for shape, tokens, peak, memory, gbps in (
        (L8, 4096, A100, 2.039e12, 2.72),
        (L8, 4096, H100, 3.35e12, 8.63),
        (OPT, 1024, A100, 2.039e12, 9.99),
        (OPT, 1024, H100, 3.35e12, 31.68),
    ):
        for passes in (2, 1):
            found = break_even_link(shape, "bfloat16", tokens, peak / 2, memory, passes)
            assert found / 1e9 == pytest.approx(gbps * passes / 2, abs=0.006)


def test_flops_a_kv_byte_of_the_notes() -> None:
    assert break_even_intensity(L8, "bfloat16", 1) == 106_496
    assert break_even_intensity(L8, "bfloat16") == 53_248
    assert break_even_intensity(OPT, "float16") == 15_360
    assert round(break_even_intensity(L70, "bfloat16") / 1e3) == 209


def test_closed_form_and_fits_agree_on_the_link() -> None:
    prefill_s = L8.prefill_flops(4096) / (A100 / 2)
    found = crossover_link(flat(1, 1, prefill_s), 4096, 16)
    assert found.crossings[0].at == pytest.approx(break_even_link(L8, "bfloat16", 4096, A100 / 2), rel=1e-6)


def test_preemptions_of_the_notes() -> None:
    """A100, 25 GB/s, 4096 tokens, half of peak: 3 preemptions cost 1184 ms or 129 by swap, 86 with the copy kept."""
    a100 = flat(25e9, 25e9, L8.prefill_flops(4096) / (A100 / 2))
    assert a100.recompute(4096, 3).value * 1e3 == pytest.approx(1184, abs=1)
    assert a100.swap(4096, 16, 3).value * 1e3 == pytest.approx(129, abs=0.5)
    assert a100.swap(4096, 16, 3, keep=True).value * 1e3 == pytest.approx(86, abs=0.5)
    assert replace(a100, swap_out=None).swap(4096, 16, 3).value == pytest.approx(a100.swap(4096, 16, 3).value / 2)


def test_the_number_of_preemptions_decides_once_the_copy_is_kept() -> None:
    gb = 4096 * L8.kv_bytes_per_token("bfloat16")
    slow = flat(gb / 0.9, gb / 0.1, 0.4)  # out 0.9 s, in 0.1 s, recompute 0.4 s: 0.9 + 0.1 k = 0.4 k at k = 3
    [crossing] = crossover_preemptions(slow, 4096, 16).crossings
    assert crossing.at == pytest.approx(3)
    assert crossing.cheaper_above == "swap"
    assert crossover_preemptions(slow, 4096, 16, keep=False).always == "recompute"


def test_mooncake_of_the_paper() -> None:
    """FAST 2025, equation 2: Llama3-70B, prefix 8192, needs 6 GB/s on 8 A800 and 19 GB/s on 8 H800."""
    needed = mooncake_bytes_per_flop(L70, "bfloat16", 8192)
    assert round(needed * 8 * 312e12 / 1e9) == 6
    assert round(needed * 8 * 989e12 / 1e9) == 19


def test_regret_is_what_a_choice_costs() -> None:
    """Copies of 100 us: small blocks make swapping slow, which neither Mooncake nor a threshold sees."""
    copies = CopyFit(0, 100e-6, 25e9)
    machine = Setting(L8, "bfloat16", "layer_split", PrefillFit(0.007, 0, 60e-6, 1e-9), copies, copies)
    rules = (Mooncake(), InferCept(), Threshold(1024), InferCept(away_s=0.0))
    table = regret_table(machine, [512, 4096], [16, 256], rules).set_index(["tokens", "block_size", "rule"])
    assert table.loc[(4096, 256, "Mooncake"), "regret_ms"] == 0
    wrong = table.loc[(4096, 16, "Mooncake")]
    assert (wrong["choice"], wrong["best"]) == ("swap", "recompute")
    swap, recompute = machine.swap(4096, 16).value, machine.recompute(4096).value
    assert wrong["regret_ms"] == pytest.approx((swap - recompute) * 1e3)
    assert table.loc[(512, 256, "swap above 1024 tokens"), "choice"] == "recompute"
    infercept = table.xs("InferCept", level="rule")
    assert infercept["choice"].tolist().count("preserve") == 4
    assert infercept[infercept["choice"] == "preserve"]["regret_ms"].isna().all()
    assert (infercept["regret_ms"].dropna() >= 0).all()


def test_infercept_weighs_memory_by_hand() -> None:
    """1,000 tokens beside 500: one chunk discards 1 s x 1,500, ten hold on average 550: 1,050; swap 0.8 s x 1,500."""
    even = flat(1, 1, 1.0)
    nbytes = 1000 * L8.kv_bytes_per_token("bfloat16")
    even = replace(even, swap_in=CopyFit(0, 0, nbytes / 0.4), swap_out=CopyFit(0, 0, nbytes / 0.4))
    assert InferCept(others=500, chunk=1000).choose(even, 1000, 16) == "swap"
    assert InferCept(others=500, chunk=100).choose(even, 1000, 16) == "recompute"


def test_a_batch_shares_the_floor_of_the_prefill() -> None:
    """One sequence of 128 tokens costs the floor, 8 ms, as two do; a swap of 3 ms each ties between them."""
    prefill = PrefillFit(floor_s=8e-3, fixed_s=0.0, linear_s=15e-6, quadratic_s=0.0)
    copy = CopyFit(fixed_s=0.0, per_copy_s=0.0, bytes_s=128 * 131072 / 1.5e-3)
    setting = Setting(L8, "bfloat16", "cross_layer", prefill, copy, copy)
    found = crossover_batch(setting, 128, 128)
    (tie,) = found.crossings
    assert (tie.cheaper_below, tie.cheaper_above) == ("swap", "recompute")
    assert tie.at == pytest.approx(8 / 3, rel=1e-6)
    assert prefill.for_batch(8).seconds(128) == pytest.approx(8 * 128 * 15e-6)
