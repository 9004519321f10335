"""Numbers of the recoveries between swap and recompute, on planted rows whose answers are worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import recoveries
from analysis.intervals import Estimate
from analysis.load import load
from analysis.recovery_rows import reach
from analysis.scaling import to_full_model
from tests.analysis import synthetic as planted
from tests.analysis.synthetic import CPU, document, write

Row = dict[str, Any]


def frame_of(folder: Path, rows: list[Row], *more: list[Row]) -> pd.DataFrame:
    """The frame of one file, or of one a session."""
    paths = []
    for index, benchmarks in enumerate((rows, *more)):
        for benchmark in benchmarks:
            benchmark["extra_info"]["session"] = f"s{index}"
        paths.append(write(folder, document(benchmarks, session=f"s{index}"), f"{index}.json"))
    return load(paths)


def paired(row: Row, wall_s: list[float], without_s: list[float]) -> Row:
    """The row with these rounds and its baseline with those."""
    for clocks, seconds in ((row["extra_info"]["clocks"], wall_s), (row["extra_info"]["baseline"], without_s)):
        clocks.update({clock: list(seconds) for clock in clocks})
    row["stats"]["data"] = list(wall_s)
    return row


def probes() -> list[Row]:
    """200 TFLOP/s and 1.6 TB/s at best: a ridge of 125 FLOP/byte."""
    gemm = [planted.ridge_gemm_row(4096, 150e12), planted.ridge_gemm_row(8192, 200e12)]
    float32 = planted.ridge_gemm_row(8192, 400e12, dtype="float32")
    return [*gemm, float32, planted.ridge_memory_row(1 << 28, 1.2e12), planted.ridge_memory_row(1 << 30, 1.6e12)]


def test_the_ridge_is_peak_over_bandwidth_as_measured(tmp_path: Path) -> None:
    """10 ms up to 128 tokens, then as the tokens: 20 ms, twice the floor, at 256."""
    prefills = [planted.ridge_prefill_row(n, 0.010 * max(1, n / 128)) for n in (1, 64, 128, 512, 2048)]
    [found] = recoveries.ridge(frame_of(tmp_path, [*prefills, *probes()]))
    assert found.peak_flops_s is not None
    assert found.memory_bytes_s is not None
    assert found.flop_per_byte is not None
    assert found.peak_flops_s.value == pytest.approx(200e12)  # of bfloat16, not of float32
    assert found.memory_bytes_s.value == pytest.approx(1.6e12)
    assert found.flop_per_byte.value == pytest.approx(125)
    assert found.flop_per_byte.interval is not None
    assert found.sheet_flop_per_byte == pytest.approx(312e12 / 1555e9)
    assert [point.tokens for point in found.points] == [1, 64, 128, 512, 2048]
    assert found.turn_tokens is not None
    assert found.turn_tokens.tokens.value == pytest.approx(256)
    assert found.floor_tokens == 1
    flops = prefills[3]["extra_info"]["work"]["flops"]
    assert found.points[3].flops_s.value == pytest.approx(flops / 0.040)


def test_the_perfect_prefill_turns_where_its_intensity_is_the_ridge(tmp_path: Path) -> None:
    """Intensity between the two points around it is a power of the tokens."""
    found = recoveries.ridge(
        frame_of(tmp_path, [*(planted.ridge_prefill_row(n, 0.01) for n in (1, 64, 256)), *probes()])
    )[0]
    low, high = (float(point.flop_per_byte or 0) for point in found.points[1:])
    power = np.log(125 / low) / np.log(high / low)
    assert found.roofline_tokens is not None
    assert found.roofline_tokens.tokens.value == pytest.approx(64 * 4**power)
    assert found.roofline_tokens.limit == ""


def test_a_ridge_beyond_what_was_timed_is_a_limit(tmp_path: Path) -> None:
    rows = [*(planted.ridge_prefill_row(n, 0.01) for n in (1, 16)), *probes()]
    [flat] = recoveries.ridge(frame_of(tmp_path, rows))
    assert flat.roofline_tokens is not None
    assert flat.turn_tokens is not None
    assert (flat.roofline_tokens.limit, flat.turn_tokens.text) == ("at least", "at least 16")
    [dense] = recoveries.ridge(frame_of(tmp_path, [planted.ridge_prefill_row(n, 0.1) for n in (512, 1024)] + probes()))
    assert dense.roofline_tokens is not None
    assert dense.roofline_tokens.text == "at most 512"


def test_without_probes_there_is_no_ridge(tmp_path: Path) -> None:
    [found] = recoveries.ridge(frame_of(tmp_path, [planted.ridge_prefill_row(16, 0.01)]))
    assert (found.peak_flops_s, found.flop_per_byte, found.roofline_tokens, found.turn_tokens) == (None,) * 4


def joins(company: str, size: int, without_s: float, a_token_s: float, **fields: Any) -> list[Row]:
    """Three lengths that each add so much a token."""
    beside: dict[str, Any] = {"company": company, "company_size": size} | fields
    return [planted.batching_row(n, without_s + n * a_token_s, without_s, **beside) for n in (16, 64, 256)]


def test_what_joins_a_step_costs_its_difference(tmp_path: Path) -> None:
    """50 us a token beside a 20 ms prefill; alone 10 ms and 50 us a token: 3.2 ms of 13.2 ms at 64 tokens."""
    singly = [planted.batching_row(n, 0.010 + n * 50e-6) for n in (16, 64, 256)]
    [found] = recoveries.batching(frame_of(tmp_path, singly + joins("prefill", 256, 0.020, 50e-6)))
    assert (found.policy, found.way, found.company.text) == ("recompute", None, "prefill of 256 tokens")
    join = found.joined[1]
    assert join.tokens == 64
    assert join.added.value == pytest.approx(0.0032)
    assert join.share is not None
    assert join.share.value == pytest.approx(3.2 / 13.2)
    assert found.free is None  # nothing rides free on a prefill


def test_tokens_ride_free_up_to_a_twentieth_of_the_step(tmp_path: Path) -> None:
    """5 us a token beside a decode step of 12 ms: 0.6 ms is 120 tokens."""
    rows = joins("decode", 16, 0.012, 5e-6) + joins("decode", 128, 0.120, 5e-6)
    slow, fast = recoveries.batching(frame_of(tmp_path, rows))
    assert slow.free is not None
    assert slow.free.tokens.value == pytest.approx(120)
    assert fast.free is not None
    assert fast.free.text == "at least 256"


def test_swaps_that_join_are_apart(tmp_path: Path) -> None:
    rows = joins("decode", 16, 0.012, 5e-6) + joins("decode", 16, 0.012, 1e-6, policy="swap")
    found = {one.policy: one for one in recoveries.batching(frame_of(tmp_path, rows))}
    assert found["swap"].way is not None
    assert found["swap"].way.text == "memcpy_batch, layer_split, scattered, block 16"
    assert found["swap"].joined[2].added.value == pytest.approx(256e-6)


def test_rounds_and_their_baselines_are_resampled_together(tmp_path: Path) -> None:
    """A clock that drifts to twice its length moves both: the difference of each pair stays within 1 us of 1 ms."""
    drift = np.linspace(0.010, 0.020, 9)
    row = planted.batching_row(64, 0.016, 0.015, company="decode", company_size=16)
    [found] = recoveries.batching(
        frame_of(tmp_path, [paired(row, list(drift + 0.001 + 1e-6 * (-1) ** np.arange(9)), list(drift))])
    )
    [join] = found.joined
    added, with_it = join.added.interval, join.with_it.interval
    assert added is not None
    assert with_it is not None
    assert added.high - added.low <= 2.001e-6
    assert with_it.high - with_it.low > 1e-3


def test_what_pairs_of_rounds_say_is_the_median_over_pairs(tmp_path: Path) -> None:
    """Pairs differ by 1, 4 and 1 s, and by 1.5, 5 and 1.1 times; the medians, 5 s and 2 s, by 3 s and 2.5 times."""
    step = planted.batching_row(64, 0.016, 0.015, company="decode", company_size=16)
    beside = planted.interference_row(0.016, 0.015)
    frame = frame_of(tmp_path, [paired(row, [3, 5, 10], [2, 1, 9]) for row in (step, beside)])
    [joined], [slowed] = recoveries.batching(frame), recoveries.interference(frame)
    assert joined.joined[0].added.value == 1
    assert slowed.factor.value == 1.5


def test_each_preemption_costs_the_slope(tmp_path: Path) -> None:
    """2 ms and 12 ms each by swap, 2 ms and 8 ms each with the copy kept, which saves 4 ms a preemption."""
    each = {"recompute": 0.050, "swap": 0.012, "swap_kept": 0.008}
    rows = [planted.preemptions_row(k, 0.002 + k * s, policy) for policy, s in each.items() for k in (1, 2, 5)]
    found = recoveries.preemptions(frame_of(tmp_path, rows))
    for one in found:
        assert one.per_preemption is not None
        assert one.per_preemption.value == pytest.approx(each[one.policy])
        assert (one.seq_len, one.growth_tokens) == (1024, 128)
    swap = next(one for one in found if one.policy == "swap_kept")
    assert swap.points[1].lengths == (1024, 1152)
    assert swap.points[1].bytes_out == (1024 << 17, 128 << 17)
    [kept] = recoveries.kept(found)
    assert {k: saved.value for k, saved in kept.saved} == pytest.approx({k: 0.004 * k for k in (1, 2, 5)})


def test_one_number_of_preemptions_has_no_slope(tmp_path: Path) -> None:
    [found] = recoveries.preemptions(frame_of(tmp_path, [planted.preemptions_row(3, 0.15)]))
    assert found.per_preemption is None
    assert recoveries.kept([found]) == []


def test_a_step_beside_a_swap_loses_time(tmp_path: Path) -> None:
    """Nine steps of 10 ms take 12 ms each while six swaps of 10 ms run: 18 ms lost for 60 ms of swap."""
    rows = [
        planted.interference_row(0.012, 0.010, beside_runs=6),
        planted.interference_row(0.030, 0.010, timed="swap", method="direct_kernel", programs=16),
        planted.interference_row(0.020, 0.010, company="prefill", company_size=1024, company_context=None),
    ]
    found = recoveries.interference(frame_of(tmp_path, rows))
    step, swap, prefill = (next(one for one in found if one.factor.value == pytest.approx(f)) for f in (1.2, 3, 2))
    assert (step.timed, step.company.text) == ("company", "decode step of 64 sequences with 256 tokens each")
    assert step.lost is not None
    assert step.lost.value == pytest.approx(0.3)
    assert step.factor.interval is not None
    assert (swap.timed, swap.way.copied) == ("swap", "direct_kernel x 16 programs")
    assert prefill.company.text == "prefill of 1,024 tokens"


def test_a_swap_that_outlasts_its_round_counts_as_long_as_the_round(tmp_path: Path) -> None:
    """Nine steps take 11 ms instead of 10, each beside the beginning of a swap of 50 ms: 9 ms lost in 99 ms of swap."""
    rows = [planted.interference_row(0.011, 0.010, beside_alone_s=0.050)]
    rows.append(
        planted.interference_row(0.060, 0.010, beside_alone_s=0.050, method="torch_copy")
    )  # waits for all of it
    goes_on, waits = recoveries.interference(frame_of(tmp_path, rows))
    assert goes_on.lost is not None
    assert waits.lost is not None
    assert (goes_on.lost.value, waits.lost.value) == pytest.approx((1 / 11, 1))


def test_what_nothing_ran_beside_has_lost_nothing_that_is_known(tmp_path: Path) -> None:
    row = planted.interference_row(0.012, 0.010, beside_runs=0)
    [found] = recoveries.interference(frame_of(tmp_path, [row]))
    assert found.lost is None


def test_resuming_by_swap_against_recompute(tmp_path: Path) -> None:
    rows = [planted.resume_row(0.030, "swap", 0.011), planted.resume_row(0.060)]
    rows.append(planted.resume_row(0.100, "swap", 0.012, seq_len=4096))
    short, long = recoveries.resume(frame_of(tmp_path, rows))
    assert short.ratio is not None
    assert short.ratio.value == pytest.approx(2)
    assert short.step_alone_s == 0.011
    assert (long.seq_len, long.recompute, long.ratio) == (4096, None, None)


def test_sessions_are_one_case(tmp_path: Path) -> None:
    [found] = recoveries.resume(
        frame_of(tmp_path, [planted.resume_row(0.030, "swap", 0.011)], [planted.resume_row(0.032, "swap", 0.013)])
    )
    assert found.swap.value == pytest.approx(0.031, rel=1e-3)
    assert found.step_alone_s == pytest.approx(0.012)


def test_fewer_layers_are_said_and_never_scaled(tmp_path: Path) -> None:
    row = planted.resume_row(0.030, "swap", 0.011, layers_timed=1)
    whole = planted.resume_row(0.9, "recompute")
    frame = load(write(tmp_path, document([row, whole], CPU)))
    [found] = recoveries.resume(frame)
    assert found.subject.layers == "1 of 32 layers timed, not scaled"
    assert found.swap.value == pytest.approx(0.030)
    assert found.recompute is None  # of all layers, so of another subject
    scaled, dropped = to_full_model(frame)
    assert scaled["policy"].tolist() == ["recompute"]
    assert dropped["reason"].tolist() == ["1 of 32 layers timed: a resume is not scaled"]


def test_suspect_rows_stay_so(tmp_path: Path) -> None:
    row = planted.interference_row(0.012, 0.010)
    row["extra_info"]["suspect"] = ["another process"]
    assert recoveries.interference(frame_of(tmp_path, [row]))[0].suspect


@pytest.mark.parametrize("name", ["ridge", "batching", "preemptions", "hybrid", "interference", "resume"])
def test_files_without_such_rows_hold_none(tmp_path: Path, name: str) -> None:
    frame = frame_of(tmp_path, [planted.row(planted.case(), [1.0])])
    assert getattr(recoveries, name)(frame) == []


def test_a_level_is_reached_once_and_for_all_between_two_points() -> None:
    """1, 2, 4 over 10, 20, 40: 3 at 30; the draws of one end pull the interval."""
    curve = [Estimate(1.0, np.array([1.0, 1.0])), Estimate(2.0, np.array([2.0, 2.0])), Estimate(4.0)]
    found = reach([10, 20, 40], curve, Estimate(3.0, np.array([3.0, 5.0])))
    assert (found.tokens.value, found.limit) == (30, "")
    assert found.tokens.draws is not None
    assert found.tokens.draws.tolist() == [30, 40]
    assert reach([10], [Estimate(1.0)], Estimate(3.0)).text == "at least 10"
    falling = [Estimate(1.0), Estimate(4.0), Estimate(2.0)]
    assert reach([10, 20, 40], falling, Estimate(2.5)).tokens.value == 15
