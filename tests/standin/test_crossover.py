"""A planted link and a planted arithmetic rate give a crossover, and analysis finds it in what the bench measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.running import STANDIN
from tests.standin.planted_crossover import reported_tie, run_session, true_tie

pytestmark = [
    pytest.mark.standin,
    pytest.mark.skipif(not STANDIN.is_file(), reason="no stand-in GPU beside this checkout"),
]


def test_the_planted_crossover_is_found_again(tmp_path: Path) -> None:
    """One seed, so within some per cent; how many of 20 intervals hold the truth, `planted_crossover` says."""
    (crossing,) = reported_tie([run_session(tmp_path, seed=0)]).crossings
    assert (crossing.cheaper_below, crossing.cheaper_above) == ("recompute", "swap")
    assert crossing.at == pytest.approx(true_tie(), rel=0.03)
    assert crossing.interval is not None
    assert crossing.interval.low < crossing.at < crossing.interval.high < 1.1 * crossing.interval.low
