from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import maxlinear
from analysis.cost_model import BadFit, CopyFit, PrefillFit, fit_copies, fit_prefill
from analysis.fitting import copy_seconds
from analysis.load import load
from analysis.published import load_published
from tests.analysis.planted import SEEDS, Machine, fits, frame
from tests.analysis.synthetic import copy_case, copy_row, document, write

COPY = ("fixed_s", "per_copy_s", "bytes_s", "issue_fixed_s", "issue_per_copy_s")
PREFILL = {"floor_s": "floor_s", "fixed_s": "base_s", "linear_s": "linear_s", "quadratic_s": "quadratic_s"}
MACHINE = Machine()


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return load_published()


@pytest.mark.parametrize("direction", ["swap_in", "swap_out"])
def test_planted_copies_are_within_their_intervals(direction: str) -> None:
    for name in COPY:
        inside = 0
        for seed in SEEDS:
            fit = fits(seed)[1][direction]
            assert fit.refusal is None
            assert getattr(fit, name) == pytest.approx(getattr(MACHINE, name), rel=0.6 if name == "fixed_s" else 0.08)
            low, high = fit.intervals[name]
            inside += low <= getattr(MACHINE, name) <= high
        assert inside >= 17, name


def test_intervals_are_those_of_medians_not_of_single_rounds() -> None:
    """2 % noise, 15 rounds, 24 cases: the rate is known to about 1 %."""
    ends = np.array([fits(seed)[1]["swap_in"].intervals["bytes_s"] for seed in SEEDS])
    assert 0.004 < np.mean(ends[:, 1] - ends[:, 0]) / MACHINE.bytes_s < 0.018


def test_planted_prefills_are_within_their_intervals() -> None:
    for name, planted in PREFILL.items():
        inside = 0
        for seed in SEEDS:
            fit = fits(seed)[0]
            assert fit.refusal is None
            assert fit.floor_source == "fitted"
            low, high = fit.intervals[name]
            inside += low <= getattr(MACHINE, planted) <= high
        assert inside >= 17, name


def test_without_noise_the_constants_come_back() -> None:
    [fit, _] = fit_copies(frame(replace(MACHINE, noise=0), 0), resamples=0).values()
    for name in COPY:
        assert getattr(fit, name) == pytest.approx(getattr(MACHINE, name), rel=1e-3), name
    assert fit.worst_held_out < 1e-3
    assert fit.seconds(1000, 1e9) == pytest.approx(MACHINE.copy_s(1000, 1e9), rel=1e-3)
    assert fit.seconds(1e6, 1e3) == pytest.approx(MACHINE.issue_s(1e6), rel=1e-3)
    assert fit.issue_seconds(10) == pytest.approx(MACHINE.issue_s(10), rel=1e-3)
    assert fit.points["residual"].abs().max() < 1e-3
    assert fit.draw_seconds(1, 1) is None


def test_a_host_that_waits_for_the_device_does_not_bend_the_issue_time() -> None:
    measured = frame(replace(MACHINE, noise=0.01), 1)
    swaps = measured["recovery"] == "swap"
    full = swaps & (measured["descriptors"] > 1024)  # the queue is full: submitting takes as long as copying
    measured.loc[full, "issue_s"] = measured.loc[full, "wall_s"].map(lambda rounds: rounds * 0.99)
    for fit in fit_copies(measured, resamples=0).values():
        assert fit.issue_per_copy_s == pytest.approx(MACHINE.issue_per_copy_s, rel=0.03)
        assert fit.bytes_s == pytest.approx(MACHINE.bytes_s, rel=0.03)


def test_sessions_that_differ_widen_the_intervals() -> None:
    alone, together = (
        next(iter(fit_copies(frame(MACHINE, 3, rounds=9, sessions=5, drift=drift), 100).values()))
        for drift in (0.0, 0.1)
    )
    width = {fit: fit.intervals["bytes_s"].high - fit.intervals["bytes_s"].low for fit in (alone, together)}
    assert width[together] > 4 * width[alone]


def test_submitting_is_copying_on_a_cpu() -> None:
    for fit in fit_copies(
        frame(replace(MACHINE, issue_fixed_s=0, issue_per_copy_s=0), 2).assign(backend="cpu"), 0
    ).values():
        assert fit.issue_per_copy_s == fit.issue_fixed_s == 0
        assert fit.per_copy_s == pytest.approx(MACHINE.per_copy_s, rel=0.1)
        assert any("CPU" in note for note in fit.notes)


def test_a_cliff_is_refused_and_gives_no_seconds() -> None:
    measured = frame(MACHINE, 0)
    slow = measured["fragment_bytes"].fillna(0) == 16 * 2048  # one size at a sixth of the rate, as in vllm#42212
    measured.loc[slow, "wall_s"] = measured.loc[slow, "wall_s"].map(lambda rounds: rounds * 6)
    fit = next(iter(fit_copies(measured, resamples=0).values()))
    assert fit.refusal is not None
    assert "misses held-out cases by up to 8" in fit.refusal
    assert fit.worst_held_out > 0.15
    for ask in (lambda: fit.seconds(1, 1), lambda: fit.issue_seconds(1), lambda: fit.draw_seconds(1, 1)):
        with pytest.raises(BadFit, match="held-out"):
            ask()


def test_a_prefill_that_is_no_polynomial_is_refused() -> None:
    measured = frame(MACHINE, 0)
    jump = (measured["recovery"] == "recompute") & (measured["seq_len"] == 2048)
    measured.loc[jump, "wall_s"] = measured.loc[jump, "wall_s"].map(lambda rounds: rounds * 2)
    [fit] = fit_prefill(measured, resamples=0).values()
    with pytest.raises(BadFit, match="held-out"):
        fit.seconds(100)


@pytest.mark.parametrize(
    ("lengths", "blocks", "refusal"),
    [
        ((256,), (16, 64), "2 different descriptors and bytes"),
        ((256, 512, 1024, 2048), (16,), "one fragment size only"),
    ],
)
def test_too_little_to_tell_the_constants_apart(lengths: list[int], blocks: list[int], refusal: str) -> None:
    measured = frame(MACHINE, 0, lengths, blocks)
    for fit in fit_copies(measured, 10).values():
        assert refusal in str(fit.refusal)
        assert np.isnan(fit.bytes_s)
        assert not fit.intervals


def test_one_length_leaves_fixed_time_in_the_rate() -> None:
    for fit in fit_copies(
        frame(replace(MACHINE, fixed_s=0), 0, lengths=(4096,), blocks=(2, 4, 16, 64, 256)), 0
    ).values():
        assert fit.fixed_s == 0
        assert fit.bytes_s == pytest.approx(MACHINE.bytes_s, rel=0.05)
        assert any("as many bytes" in note for note in fit.notes)


def test_unverified_and_foreign_rows_are_left_out() -> None:
    measured = frame(MACHINE, 0)
    wrong = measured[measured["recovery"] == "swap"].assign(verified=False, case_id="x")
    other = measured[measured["recovery"] == "swap"].assign(share=0.5, case_id="y")
    other["wall_s"] = other["wall_s"].map(lambda rounds: rounds * 9)
    fit = next(iter(fit_copies(pd.concat([measured, wrong, other]), 0).values()))
    assert fit.bytes_s == pytest.approx(MACHINE.bytes_s, rel=0.05)


def test_fewer_layers_are_scaled_to_the_model() -> None:
    measured = frame(replace(MACHINE, noise=0), 0)
    part = measured["recovery"] == "recompute"
    measured.loc[part, "layers_timed"] = 8
    measured.loc[part, "outside_layers_s"] = 0.0
    measured["outside_layers_s"] = measured["outside_layers_s"].where(~part, 1e-9)
    [fit] = fit_prefill(measured, resamples=0).values()
    assert fit.linear_s == pytest.approx(4 * MACHINE.linear_s, rel=0.01)
    assert any("scaled" in note for note in fit.notes)


def test_refits_find_the_minimum_that_scipy_finds() -> None:
    rng = np.random.default_rng(0)
    n, nbytes = np.repeat([10.0, 100.0, 1e3, 1e4], 5), np.tile([1e6, 1e7, 1e8, 1e9, 3e9], 4)
    truth = np.array([1e-4, 2e-6, 1 / 2e10, 2e-4, 4e-6])
    zero, one = np.zeros(20), np.ones(20)
    problem = maxlinear.Problem(
        np.stack([np.column_stack([one, n, nbytes, zero, zero]), np.column_stack([zero, zero, zero, one, n])]),
        copy_seconds(truth, n, nbytes) * (1 + 0.05 * rng.standard_normal(20)),
        zero > 0,
        np.arange(20),
        one > 0,
        np.zeros(5),
        nbytes / n,
    )
    best = maxlinear.fit(problem)
    assert problem.cost(maxlinear.refit(problem, truth)) == pytest.approx(problem.cost(best), rel=0.01)
    assert problem.cost(best) <= problem.cost(truth)
    assert (best >= 0).all()


def test_published_h100_copies(published: pd.DataFrame) -> None:
    """Constants read off the same figures by hand: 3.6 to 4.5 us a small copy, 51 GB/s (`papers-and-numbers`)."""
    found = fit_copies(published, resamples=50)
    loops = {key.direction: fit for key, fit in found.items() if "DMA" in key.method and key.origin == "published"}
    for fit in loops.values():
        assert fit.refusal is None
        assert 3.0e-6 < fit.seconds(1000, 1000 * 4096) / 1000 < 4.5e-6
        assert fit.bytes_s == pytest.approx(51e9, rel=0.05)
        assert fit.intervals["bytes_s"].low < fit.bytes_s < fit.intervals["bytes_s"].high
    [batch] = [fit for key, fit in found.items() if key.method == "cuMemcpyBatchAsync, one call"]
    assert batch.refusal is not None, "the cliff between 24 and 28 KiB is no sum of constants"


def test_published_prefills_keep_their_kind(published: pd.DataFrame) -> None:
    found = {key: fit for key, fit in fit_prefill(published, resamples=0).items() if key.model == "llama-3-8b"}
    served = next(fit for key, fit in found.items() if key.kind == "ttft_s" and key.machine.startswith("H100"))
    assert served.floor_source == "data sheet"
    assert served.floor_s == pytest.approx(0.0045, rel=0.01)  # 15.0 GB / 3.35 TB/s
    assert served.seconds(50_000) == pytest.approx(2.29, rel=0.02)
    kernels = next(fit for key, fit in found.items() if key.kind != "ttft_s" and key.machine == "H100-SXM5-80GB")
    assert kernels.seconds(10_000) < served.seconds(10_000)


def test_fits_are_plain_numbers_without_data() -> None:
    assert CopyFit(1e-5, 2e-6, 25e9).seconds(10, 25e9) == pytest.approx(1.00003)
    assert PrefillFit(0.01, 0.001, 1e-4, 1e-8).seconds(10) == 0.01
    assert PrefillFit(0.01, 0.001, 1e-4, 1e-8).seconds(1000) == pytest.approx(0.111)


def test_noise_of_submission_does_not_take_the_place_of_the_device(tmp_path: Path) -> None:
    """Issue clocks of some 30 us that follow no number of copies, beside walls of milliseconds."""
    cases = [copy_case("swap_in", fragment_bytes=size, fragments=n) for size in (4096, 65536) for n in (64, 128, 256)]
    rows = []
    for order, case in enumerate(cases):
        wall = case["fragments"] * (60e-6 + case["fragment_bytes"] / 2e9)
        rows.append(copy_row(case, [wall, wall], order))
        rows[-1]["extra_info"]["clocks"]["issue_s"] = [(30e-6, 90e-6, 35e-6)[order % 3]] * 2
    (fit,) = fit_copies(load(write(tmp_path, document(rows))), resamples=0).values()
    assert fit.refusal is None
    assert fit.per_copy_s == pytest.approx(60e-6, rel=0.01)
    assert fit.bytes_s == pytest.approx(2e9, rel=0.01)
    assert fit.issue_per_copy_s < 2e-6
