"""The best split of a hybrid, found and predicted, on planted rows whose answers are worked out by hand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from analysis import recoveries
from analysis.recoveries import CURVES, PARTS
from tests.analysis import synthetic as planted
from tests.analysis.synthetic import BLOCKS
from tests.analysis.test_recoveries import Row, frame_of


def splits(front_s: float, rest_s: float, fractions: tuple[float, ...] = (0, 0.1, 0.2, 0.4, 1)) -> list[Row]:
    """Both parts proportional to their tokens, at once, and 1 ms for the pair."""
    parts = [(f, f * front_s, (1 - f) * rest_s) for f in fractions]
    return [
        planted.hybrid_row(f, max(front, rest) + 0.001 * (0 < f < 1), front or None, rest or None)
        for f, front, rest in parts
    ]


def test_the_best_split_is_found_and_predicted(tmp_path: Path) -> None:
    """400 ms computed or 100 ms swapped: both parts take 80 ms where a fifth is computed."""
    [found] = recoveries.hybrid(frame_of(tmp_path, splits(0.400, 0.100)))
    assert (found.best.fraction, found.best_fraction.value, found.seq_len) == (0.2, 0.2, 4096)
    assert found.best_fraction.interval == (0.2, 0.2)
    assert found.best.front_tokens == 819
    assert found.to_faster is not None
    assert found.to_faster.value == pytest.approx(0.81)  # of the swap's 100 ms
    assert found.to_bound is not None
    assert found.to_bound.value == pytest.approx(81 / 80)
    [predicted] = found.predicted
    assert predicted.by == PARTS
    assert predicted.fraction.value == pytest.approx(0.2, abs=0.002)
    assert predicted.time.value == pytest.approx(0.080, rel=0.01)


def test_a_split_between_those_timed_is_predicted(tmp_path: Path) -> None:
    [found] = recoveries.hybrid(frame_of(tmp_path, splits(0.300, 0.100, (0, 0.1, 0.4, 1))))
    assert found.best.fraction == 0.1
    assert found.predicted[0].fraction.value == pytest.approx(0.25, abs=0.002)  # 75 ms each


def test_where_swap_alone_is_fastest_the_prediction_is_swap(tmp_path: Path) -> None:
    """A prefill of any length takes 200 ms: it pays to compute nothing, and between 0 and 0.1 nothing is made up."""
    rows = [planted.hybrid_row(f, max(0.2, 0.1 * (1 - f)), 0.2, 0.1 * (1 - f) or None) for f in (0.1, 0.4, 1)]
    rows.append(planted.hybrid_row(0, 0.1, None, 0.1))
    [found] = recoveries.hybrid(frame_of(tmp_path, rows))
    assert found.best.fraction == 0
    assert found.to_faster is not None
    assert found.to_faster.value == 1
    assert found.predicted[0].fraction.value == 0


def test_fractions_too_close_to_tell_have_a_wide_interval(tmp_path: Path) -> None:
    rows = [planted.hybrid_row(f, 0.1, 0.05, 0.05) for f in (0.1, 0.2, 0.3)]
    for row, wall in zip(rows, ([0.1, 0.2] * 9, [0.2, 0.1] * 9, [0.3] * 18), strict=True):
        row["extra_info"]["clocks"] = dict.fromkeys(("wall_s", "issue_s", "device_s"), wall)
        row["stats"]["data"] = wall
    [found] = recoveries.hybrid(frame_of(tmp_path, rows))
    assert found.best_fraction.interval == (0.1, 0.2)
    assert found.to_faster is None  # neither swap nor recompute was timed


def curve_rows(lengths: tuple[int, ...], **fields: Any) -> list[Row]:
    """Swap in at 25 us a token and recompute at 100 us a token."""
    found = []
    for n in lengths:
        swap = planted.question("swap", seq_len=n, direction="swap_in", **(BLOCKS | fields))
        found.append(planted.row(swap, planted.rounds(n * 25e-6)))
        found.append(planted.recompute_row(n * 100e-6, seq_len=n))
    return found


def test_the_two_curves_predict_as_well(tmp_path: Path) -> None:
    """4,096 tokens: 409.6 ms computed, 102.4 ms swapped: a fifth, in 81.92 ms."""
    rows = splits(0.400, 0.100) + curve_rows((64, 512, 4096))
    rows.append(planted.recompute_row(9.0, seq_len=2048, chunk_tokens=512))
    [found] = recoveries.hybrid(frame_of(tmp_path, rows))
    parts, curves = found.predicted
    assert (parts.by, curves.by) == (PARTS, CURVES)
    assert curves.fraction.value == pytest.approx(0.2)
    assert curves.time.value == pytest.approx(0.08192, rel=1e-3)
    assert curves.time.interval is not None


@pytest.mark.parametrize(
    "rows",
    [curve_rows((64, 512)), curve_rows((4096,)), curve_rows((64, 4096), method="memcpy_loop"), []],
    ids=["too short", "one length", "another method", "none"],
)
def test_curves_that_do_not_suffice_predict_nothing(tmp_path: Path, rows: list[Row]) -> None:
    [found] = recoveries.hybrid(frame_of(tmp_path, splits(0.4, 0.1) + copy.deepcopy(rows)))
    assert [one.by for one in found.predicted] == [PARTS]
