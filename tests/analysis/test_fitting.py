"""What a fit's resamples hold beyond the noise of rounds."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.fitting import _with_lack_of_fit
from analysis.maxlinear import Problem, fit

CASES, NOISE = 60, 0.001


@pytest.mark.parametrize(("scatter", "least", "most"), [(0.03, 0.02, 0.04), (0.0, 0.0, 0.003)])
def test_draws_hold_how_far_cases_lie_from_the_model(scatter: float, least: float, most: float) -> None:
    rng = np.random.default_rng(7)
    x = np.linspace(1, 10, CASES)
    seconds = x * (1 + scatter * rng.standard_normal(CASES)) * (1 + NOISE * rng.standard_normal(CASES))
    none, every = np.zeros(CASES, dtype=bool), np.ones(CASES, dtype=bool)
    pieces = np.stack([x[:, None], np.zeros((CASES, 1))])
    problem = Problem(pieces, seconds, none, np.arange(CASES), every, np.zeros(1), x)
    rounds = seconds * (1 + NOISE * rng.standard_normal((500, CASES)))
    drawn = _with_lack_of_fit(problem, fit(problem), rounds, key=1)
    spread = float((drawn / seconds).std(axis=0).mean())
    assert least < spread < most
    assert (drawn / seconds).mean() == pytest.approx(1, abs=0.003)
