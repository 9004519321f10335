"""Medians and their bootstrap intervals: against order statistics, and in the limits where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.intervals import Estimate, median

ROUNDS = np.random.default_rng(1).normal(10, 1, 101)


def test_one_round_has_no_interval() -> None:
    estimate = median([np.array([3.0])])
    assert (estimate.value, estimate.interval) == (3.0, None)


def test_no_round_has_no_median() -> None:
    with pytest.raises(ValueError, match="median of no rounds"):
        median([])


def test_the_interval_is_that_of_order_statistics() -> None:
    """For n = 101 the binomial 95 % interval of the median runs from the 41st to the 61st value."""
    estimate = median([ROUNDS])
    interval = estimate.interval
    assert interval is not None
    assert estimate.draws is not None
    assert np.mean((estimate.draws >= interval.low) & (estimate.draws <= interval.high)) == pytest.approx(
        0.95, abs=0.02
    )
    low, high = np.sort(ROUNDS)[[40, 60]]
    assert interval.low == pytest.approx(low, abs=0.1)
    assert interval.high == pytest.approx(high, abs=0.1)


def test_equal_rounds_give_an_interval_without_width() -> None:
    assert median([np.full(5, 2.0)]).interval == (2.0, 2.0)


def test_a_key_gives_the_same_interval_every_time_and_keys_are_independent() -> None:
    first, again, other = median([ROUNDS], [1]), median([ROUNDS], [1]), median([ROUNDS], [2])
    assert first.interval == again.interval
    assert first.draws is not None
    assert other.draws is not None
    assert abs(np.corrcoef(first.draws, other.draws)[0, 1]) < 0.1


def test_sessions_that_differ_widen_the_interval() -> None:
    """Pooled rounds know nothing of the difference between processes; two-level resampling does."""
    sessions = [ROUNDS, ROUNDS + 5]
    apart, pooled = median(sessions), median([np.concatenate(sessions)])
    assert apart.value == pooled.value
    assert apart.interval is not None
    assert pooled.interval is not None
    assert apart.interval.low < 10.5 < 14.5 < apart.interval.high
    assert pooled.interval.high - pooled.interval.low < apart.interval.high - apart.interval.low


def test_sums_and_ratios_combine_values_and_draws() -> None:
    a, b = median([ROUNDS], [1]), median([2 * ROUNDS], [2])
    total, ratio = a + b, b / a
    assert total.value == pytest.approx(3 * a.value)
    assert ratio.value == pytest.approx(2)
    assert a.interval is not None
    assert b.interval is not None
    assert total.interval is not None
    assert ratio.interval is not None
    widths = [e.high - e.low for e in (a.interval, b.interval, total.interval)]
    assert max(widths[:2]) < widths[2] < widths[0] + widths[1]  # independent errors add by less than their sum
    assert ratio.interval.low < 2 < ratio.interval.high
    assert (a * 1000).interval == pytest.approx([end * 1000 for end in a.interval])


def test_a_part_without_interval_leaves_none() -> None:
    known, unknown = median([ROUNDS]), Estimate(1.0)
    assert (known + unknown).interval is None
    assert (unknown / known).interval is None
    assert (unknown * 2).interval is None


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.floats(1e-6, 10), min_size=1, max_size=6), min_size=1, max_size=3))
def test_the_interval_lies_within_the_rounds(sessions: list[list[float]]) -> None:
    estimate = median([np.array(session) for session in sessions])
    rounds = np.concatenate([np.array(session) for session in sessions])
    assert estimate.value == np.median(rounds)
    if estimate.interval is not None:
        low, high = estimate.interval
        assert rounds.min() * (1 - 1e-9) <= low <= high <= rounds.max() * (1 + 1e-9)
