"""From observations to constants: the two design matrices of each cost model, the fit, its draws and its judgement."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis import maxlinear
from analysis.intervals import SEED
from analysis.maxlinear import Floats, Problem
from analysis.observations import Observations, PrefillKey
from analysis.published import find_shape, find_spec
from kernels.shapes import DTYPE_BYTES

HELD_OUT_LIMIT = 0.15
BLOCKED = 0.9  # issue / wall above this: the host waited for the device, so issue_s / 0.9 is an upper bound, no more
FAR_BELOW = 0.5  # issue / wall below this in every case: the device decided, not the host
FIXED, PER_COPY, PER_BYTE, ISSUE_FIXED, ISSUE_PER_COPY = range(5)


@dataclass(frozen=True, eq=False)
class Solution:
    """Constants, their draws, and whether they may be used. Fields as in `analysis.cost_model.CopyFit`."""

    theta: Floats
    draws: Floats | None
    worst_held_out: float
    refusal: str | None
    notes: tuple[str, ...]
    points: pd.DataFrame
    floor_source: str = "none"


def copy_seconds(theta: Floats, descriptors: Any, nbytes: Any) -> Floats:
    """max(issue, device) of a copy, for one set of constants or a row each."""
    device = theta[..., FIXED] + descriptors * theta[..., PER_COPY] + nbytes * theta[..., PER_BYTE]
    host = theta[..., ISSUE_FIXED] + descriptors * theta[..., ISSUE_PER_COPY]
    return np.asarray(np.maximum(host, device), dtype=float)


def prefill_seconds(theta: Floats, tokens: Any) -> Floats:
    """max(floor, polynomial) of a prefill, for one set of constants or a row each."""
    polynomial = theta[..., 1] + theta[..., 2] * tokens + theta[..., 3] * tokens**2
    return np.asarray(np.maximum(theta[..., 0], polynomial), dtype=float)


def solve_copies(seen: Observations, key: tuple[Any, ...], resamples: int) -> Solution:
    """Fit the constants of copies; `theta` is (fixed, per copy, seconds a byte, issue fixed, issue per copy)."""
    points = pd.DataFrame({"descriptors": seen.x[:, 0], "bytes": seen.x[:, 1], "seconds": seen.seconds})
    columns, notes = _separable(seen)
    distinct = len(points.drop_duplicates(["descriptors", "bytes"]))
    refusal = _too_few(distinct, int(columns[:3].sum()), "descriptors and bytes")
    if np.ptp(seen.x[:, 0]) > 0 and np.ptp(seen.x[:, 1] / seen.x[:, 0]) == 0:
        refusal = refusal or "one fragment size only: time a copy and time a byte cannot be told apart"
    if refusal:
        return Solution(np.full(5, np.nan), None, float("nan"), refusal, notes, points)
    issue = np.isfinite(seen.issue_s) & (seen.issue_s > 0) & columns[ISSUE_PER_COPY]
    problem = _copy_problem(seen, columns, issue)
    theta = maxlinear.fit(problem)
    misfit = np.abs(problem.residuals(theta)[len(seen.seconds) :])
    noisy = bool(misfit.size) and np.quantile(misfit, 0.75) > HELD_OUT_LIMIT
    if noisy and (seen.issue_s[issue] < FAR_BELOW * seen.seconds[issue]).all():
        return _issue_beside(seen, columns, issue, points, notes, key, resamples)
    if noisy:
        notes += ("issue_s does not follow the number of copies; the issue terms come from the wall clock",)
        issue = np.zeros_like(issue)
        problem = _copy_problem(seen, columns, issue)
        theta = maxlinear.fit(problem)
    observed = None
    if seen.draws is not None and seen.issue_draws is not None:
        observed = np.hstack([seen.draws, (seen.issue_draws / _slack(seen))[:, issue]])
    points["fitted"] = copy_seconds(theta, seen.x[:, 0], seen.x[:, 1])
    return _judge(problem, theta, observed, points, notes, seen, key, resamples)


def _issue_beside(
    seen: Observations,
    columns: maxlinear.Flags,
    issue: maxlinear.Flags,
    points: pd.DataFrame,
    notes: tuple[str, ...],
    key: tuple[Any, ...],
    resamples: int,
) -> Solution:
    """Wall clocks without issue terms, and the median of issue_s a copy beside them.

    Where the host was done long before the device, the wall clock says nothing of submission: fitted to it, the issue
    terms would take the device's place.
    """
    notes += ("issue_s is noisy and far below the wall clock: the issue term is its median a copy",)
    device = columns.copy()
    device[[ISSUE_FIXED, ISSUE_PER_COPY]] = False
    problem = _copy_problem(seen, device, np.zeros_like(issue))
    theta = maxlinear.fit(problem)
    points["fitted"] = copy_seconds(theta, seen.x[:, 0], seen.x[:, 1])
    solved = _judge(problem, theta, seen.draws, points, notes, seen, key, resamples)
    a_copy = float(np.median(seen.issue_s[issue] / seen.x[issue, 0]))
    solved.theta[ISSUE_PER_COPY] = a_copy
    if solved.draws is not None:
        solved.draws[:, ISSUE_PER_COPY] = a_copy
    return solved


def _copy_problem(seen: Observations, columns: maxlinear.Flags, issue: maxlinear.Flags) -> Problem:
    """Wall clocks of every case, then issue clocks of those in `issue`: upper bounds where the host was held up."""
    n, nbytes = seen.x.T
    zero, one = np.zeros_like(n), np.ones_like(n)
    device = np.column_stack([one, n, nbytes, zero, zero]) * columns
    host = np.column_stack([zero, zero, zero, one, n]) * columns
    nothing = np.zeros((int(issue.sum()), 5))
    cases, slack = np.arange(len(n)), _slack(seen)
    return Problem(
        pieces=np.stack([np.vstack([device, nothing]), np.vstack([host, host[issue]])]),
        observed=np.concatenate([seen.seconds, (seen.issue_s / slack)[issue]]),
        bound=np.concatenate([zero > 0, (slack < 1)[issue]]),
        case=np.concatenate([cases, cases[issue]]),
        scored=np.concatenate([one > 0, np.zeros(int(issue.sum()), dtype=bool)]),
        lower=np.zeros(5),
        order=np.concatenate([nbytes / n, (nbytes / n)[issue]]),
    )


def _slack(seen: Observations) -> Floats:
    """`BLOCKED` where the host waited, else 1: at the bound itself, noise would pull the issue time down."""
    return np.where(seen.issue_s > BLOCKED * seen.seconds, BLOCKED, 1.0)


def _separable(seen: Observations) -> tuple[maxlinear.Flags, tuple[str, ...]]:
    """Which of the five constants these cases can tell apart."""
    columns, notes = np.ones(5, dtype=bool), seen.notes
    n, nbytes = seen.x.T
    if np.ptp(n) == 0:
        gone, kept = ([PER_COPY, ISSUE_PER_COPY], FIXED) if n[0] == 1 else ([FIXED, ISSUE_FIXED], PER_COPY)
        columns[gone] = False
        notes += (f"always {n[0]:.0f} copies: what a plan and a copy cost is one constant, {_name(kept)}",)
    elif np.ptp(nbytes) == 0:
        columns[FIXED] = False
        notes += ("always as many bytes: fixed_s is within the rate",)
    if not np.isfinite(seen.issue_s).any() and len(np.unique(seen.x, axis=0)) <= columns.sum():
        columns[[ISSUE_FIXED, ISSUE_PER_COPY]] = False
        notes += ("too few cases to tell submission from copying: no issue terms",)
    if seen.backend == "cpu":
        columns[[ISSUE_FIXED, ISSUE_PER_COPY]] = False
        notes += ("CPU: submitting is copying, no issue terms",)
    return columns, notes


def _name(column: int) -> str:
    return ("fixed_s", "per_copy_s")[column]


def solve_prefill(seen: Observations, key: PrefillKey, resamples: int) -> Solution:
    """Fit the constants of a prefill; `theta` is (floor, fixed, linear, quadratic)."""
    tokens = seen.x[:, 0]
    points = pd.DataFrame({"tokens": tokens, "seconds": seen.seconds})
    if refusal := _too_few(len(set(tokens)), 3, "lengths"):
        return Solution(np.full(4, np.nan), None, float("nan"), refusal, seen.notes, points)
    sheet = _weight_read_s(seen.hardware, key.model, key.dtype)
    zero, one = np.zeros_like(tokens), np.ones_like(tokens)
    problem = Problem(
        pieces=np.stack(
            [np.column_stack([zero, one, tokens, tokens**2]), np.column_stack([one, zero, zero, zero])],
        ),
        observed=seen.seconds,
        bound=zero > 0,
        case=np.arange(len(tokens)),
        scored=one > 0,
        lower=np.array([min(sheet, seen.seconds.min()), 0.0, 0.0, 0.0]),
        order=tokens,
    )
    theta = maxlinear.fit(problem)
    points["fitted"] = prefill_seconds(theta, tokens)
    solved = _judge(problem, theta, seen.draws, points, seen.notes, seen, key, resamples)
    fitted = (points["fitted"] <= theta[0]).any()
    return replace(solved, floor_source="fitted" if fitted else "data sheet" if sheet else "none")


def _weight_read_s(hardware: str, model: str, dtype: str) -> float:
    """Weight bytes over memory bandwidth of the data sheet; 0 where either is not known."""
    spec = find_spec(hardware.split(",")[0])
    try:
        shape = find_shape(model)
    except ValueError:
        return 0.0
    return shape.weight_bytes(dtype) / spec.hbm_bytes_s if spec and dtype in DTYPE_BYTES else 0.0


def _judge(
    problem: Problem,
    theta: Floats,
    observed: Floats | None,
    points: pd.DataFrame,
    notes: tuple[str, ...],
    seen: Observations,
    key: tuple[Any, ...],
    resamples: int,
) -> Solution:
    """Refused where held-out cases are missed by more than the limit beyond the error of their own values."""
    points["residual"] = points["fitted"] / points["seconds"] - 1
    misses = maxlinear.held_out(problem)
    worst = float(np.maximum(np.abs(misses) - seen.reading_error, 0).max())
    refusal = None
    if worst > HELD_OUT_LIMIT:
        refusal = f"misses held-out cases by up to {worst:.1%} (limit {HELD_OUT_LIMIT:.0%}): no constants"
    if resamples and observed is None:
        observed = _resampled_residuals(problem, theta, resamples, zlib.crc32(str(key).encode()))
    elif observed is not None and len(observed):
        observed = _with_lack_of_fit(problem, theta, observed, zlib.crc32(str(key).encode()))
    draws = None
    if observed is not None and len(observed):
        draws = np.array([maxlinear.refit(problem.observing(row), theta) for row in observed])
    return Solution(theta, draws, worst, refusal, notes, points)


def _resampled_residuals(problem: Problem, theta: Floats, resamples: int, key: int) -> Floats | None:
    """Residual bootstrap (Efron and Tibshirani, 1993, section 9.4), scaled for the constants that were fitted."""
    rows, used = len(problem.observed), int((theta > problem.lower).sum())
    if rows <= used:
        return None
    residuals = (problem.observed / problem.predict(theta) - 1) * np.sqrt(rows / (rows - used))
    picks = np.random.default_rng((SEED, key)).integers(rows, size=(resamples, rows))
    return np.asarray(np.maximum(problem.predict(theta) * (1 + residuals[picks]), 1e-12))


def _with_lack_of_fit(problem: Problem, theta: Floats, observed: Floats, key: int) -> Floats:
    """Resampled values, each moved by a residual of another case as well: the model misses cases by more than noise.

    Residuals hold the noise of rounds and sessions once already; what exceeds it is the lack of fit (the split of an
    analysis of variance), and only so much of them is added. Bounds and issue clocks are left as they are.
    """
    rows = problem.scored & ~problem.bound
    count, used = int(rows.sum()), int((theta > problem.lower).sum())
    if count <= used:
        return observed
    residuals = (problem.residuals(theta) * np.sqrt(count / (count - used)))[rows]
    noise = (observed[:, rows] / np.median(observed[:, rows], axis=0)).var(axis=0).mean()
    whole = float(np.mean(residuals**2))
    share = np.sqrt(max(0.0, 1 - noise / whole)) if whole > 0 else 0.0
    picks = np.random.default_rng((SEED, key)).integers(count, size=(len(observed), count))
    moved = observed.copy()
    moved[:, rows] *= 1 - share * (residuals - residuals.mean())[picks]
    return np.maximum(moved, 1e-12)


def _too_few(points: int, constants: int, what: str) -> str | None:
    return f"{points} different {what}; at least {constants + 1} are needed" if points <= constants else None
