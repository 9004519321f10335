"""Robust regression of models that are the larger of two sums: y = max(A theta, B theta) with theta >= lower.

Residuals are relative (a microsecond and a second weigh the same) under the soft-L1 loss, so that a few odd cases do
not carry the constants away. scipy's `least_squares` minimises it; resamples start from its answer and need a few
weighted non-negative least squares (`nnls`) each, the same minimum thirty times faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
LOSS_SCALE = 0.05  # relative residuals beyond this count linearly, not squared
STARTS = (0.0, 0.25, 0.5, 0.75)  # share of the points that the second piece holds when the search begins
STEPS = 40
FOLDS = 5
UNSEEN = 1e-6  # what adds less than this to every observation is 0


@dataclass(frozen=True, eq=False)
class Problem:
    """Observations and the two pieces that may explain each.

    Attributes
    ----------
    pieces : numpy.ndarray
        Shape (2, rows, parameters): the two design matrices.
    observed : numpy.ndarray
        Positive, one a row.
    bound : numpy.ndarray of bool
        The observation is an upper bound only: a model below it is no misfit.
    case : numpy.ndarray of int
        Rows of one case are left out together.
    scored : numpy.ndarray of bool
        Rows that count when the model is judged on held-out cases.
    lower : numpy.ndarray
        Least value of each parameter, 0 or more.
    order : numpy.ndarray
        Low for rows likely to lie on the second piece.
    """

    pieces: Floats
    observed: Floats
    bound: Flags
    case: NDArray[np.int64]
    scored: Flags
    lower: Floats
    order: Floats

    def predict(self, theta: Floats) -> Floats:
        """The model at every row."""
        return np.asarray((self.pieces @ theta).max(axis=0), dtype=float)

    def residuals(self, theta: Floats) -> Floats:
        """Relative, model / observed - 1; 0 for a bound that is kept."""
        found = self.predict(theta) / self.observed - 1
        return np.where(self.bound & (found < 0), 0.0, found)

    def cost(self, theta: Floats) -> float:
        """The soft-L1 objective of scipy's `least_squares`."""
        z = (self.residuals(theta) / LOSS_SCALE) ** 2
        return float(LOSS_SCALE**2 * (np.sqrt(1 + z) - 1).sum())

    def subset(self, rows: Flags) -> Problem:
        """Some rows only."""
        kept = {name: getattr(self, name)[rows] for name in ("observed", "bound", "case", "scored", "order")}
        return replace(self, pieces=self.pieces[:, rows], **kept)

    def observing(self, observed: Floats) -> Problem:
        """The same rows with other values."""
        return replace(self, observed=observed)


def fit(problem: Problem) -> Floats:
    """The parameters of least cost, from several starts."""
    from scipy.optimize import least_squares  # imports that reading and checking files do not need

    best = _from_starts(problem)
    scale = np.maximum(best, 1 / _column_sizes(problem))
    active = problem.pieces.any(axis=(0, 1)) & np.isfinite(scale)
    if not active.any():
        return best

    def full(part: Floats) -> Floats:
        theta = best.copy()
        theta[active] = part * scale[active]
        return theta

    def slopes(part: Floats) -> Floats:
        theta = full(part)
        rows = _holding(problem, theta)[:, active] * scale[active] / problem.observed[:, None]
        return np.where((problem.bound & (problem.predict(theta) < problem.observed))[:, None], 0.0, rows)

    low = problem.lower[active] / scale[active]

    def misses(part: Floats) -> Floats:
        return problem.residuals(full(part))

    solution = least_squares(
        misses,
        np.maximum(best[active] / scale[active], low * (1 + 1e-9) + 1e-12),
        jac=slopes,
        bounds=(low, np.inf),
        loss="soft_l1",
        f_scale=LOSS_SCALE,
    )
    found = full(np.asarray(solution.x, dtype=float))
    found = found if problem.cost(found) <= problem.cost(best) else best
    unseen = (found - problem.lower) * _column_sizes(problem) < UNSEEN
    return np.asarray(np.where(unseen, problem.lower, found), dtype=float)


def refit(problem: Problem, start: Floats, steps: int = STEPS) -> Floats:
    """The minimum near `start`: weighted non-negative least squares until the cost settles."""
    best, best_cost, theta = start, problem.cost(start), start
    for _ in range(steps):
        theta = _step(problem, theta, _holding(problem, theta))
        cost = problem.cost(theta)
        settled = cost > best_cost * (1 - 1e-6)
        if cost < best_cost:
            best, best_cost = theta, cost
        if settled:
            break
    return best


def held_out(problem: Problem) -> Floats:
    """Relative misses at cases the fit did not see, one a scored row: every fifth case is left out in turn (`FOLDS`).

    The cases at both ends (least and largest observation) always stay in, their misses are 0: what is judged is
    interpolation.
    """
    scored = problem.subset(problem.scored)
    inner = scored.case[np.argsort(scored.observed, kind="stable")][1:-1]
    misses = np.zeros(len(problem.observed))
    for fold in range(min(FOLDS, len(inner))):
        out = np.isin(problem.case, inner[fold::FOLDS])
        theta = _from_starts(problem.subset(~out))
        misses[out] = (problem.predict(theta) / problem.observed - 1)[out]
    return misses[problem.scored]


def _from_starts(problem: Problem) -> Floats:
    ranks = np.argsort(np.argsort(problem.order, kind="stable"), kind="stable") / max(1, len(problem.order))
    found: list[Floats] = []
    for share in STARTS:
        second = (ranks < share) | ~problem.pieces[0].any(axis=1)
        rows = np.where(second[:, None], problem.pieces[1], problem.pieces[0])
        found.append(refit(problem, _step(problem, None, rows)))
    return min(found, key=problem.cost)


def _holding(problem: Problem, theta: Floats) -> Floats:
    """The row of the design matrix that holds (is the larger) at each observation."""
    second = problem.pieces[1] @ theta > problem.pieces[0] @ theta
    return np.asarray(np.where(second[:, None], problem.pieces[1], problem.pieces[0]), dtype=float)


def _step(problem: Problem, theta: Floats | None, rows: Floats) -> Floats:
    """One weighted non-negative least squares on relative residuals; without `theta` all weights are 1."""
    from scipy.optimize import nnls

    weights = np.ones(len(rows))
    if theta is not None:
        residuals = rows @ theta / problem.observed - 1
        weights = (1 + (residuals / LOSS_SCALE) ** 2) ** -0.25  # root of soft-L1's weight
        weights[problem.bound & (residuals < 0)] = 0.0
    else:
        weights[problem.bound] = 0.0
    sizes = _column_sizes(problem)
    target = (problem.observed - rows @ problem.lower) / problem.observed
    solution, _ = nnls(rows / sizes / problem.observed[:, None] * weights[:, None], target * weights)
    return np.asarray(problem.lower + solution / sizes, dtype=float)


def _column_sizes(problem: Problem) -> Floats:
    """What one unit of each parameter is worth in relative terms: keeps microseconds and seconds in one matrix."""
    sizes = np.abs(problem.pieces / problem.observed[None, :, None]).max(axis=(0, 1))
    return np.where(sizes > 0, sizes, 1.0)
