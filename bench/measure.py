"""Warm-up, rounds and the three clocks of anything that can be issued.

wall    host seconds from before the first enqueue until the device is done: what a scheduler that waits pays
issue   host seconds spent enqueueing: what a scheduler that overlaps pays
device  seconds between two marks on the device's own stream

The wall clock is pytest-benchmark's: pedantic mode, default timer, and the wait is inside the timed target.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from kernels.device import Device
from kernels.pointwise import compilations

MIN_ROUNDS, MAX_ROUNDS = 5, 100
LONG_ROUND_S = 0.1


class Benchmark(Protocol):
    """The part of pytest-benchmark's fixture that is used."""

    disabled: bool
    stats: Any
    extra_info: dict[str, Any]

    def pedantic(self, target: Callable[[], object], **options: Any) -> object:
        """Run `target` a fixed number of rounds."""


@dataclass(frozen=True)
class Clocks:
    """One value a round, in the order in which they ran, in seconds."""

    wall_s: list[float]
    issue_s: list[float]
    device_s: list[float]

    def as_dict(self) -> dict[str, list[float]]:
        """Plain values for the result row."""
        return asdict(self)


@dataclass(frozen=True)
class Measurement:
    """Clocks of one case, those of its baseline if it has one, and what went wrong while they ran."""

    clocks: Clocks
    suspect: list[str]
    baseline: Clocks | None = None


class Switch(Protocol):
    """Other work that runs by itself (bench/beside.py) and is not part of what is timed."""

    def resume(self) -> None:
        """Have it run; back once it does."""

    def pause(self) -> None:
        """Have it stop; back once all of it is done. Raises what went wrong in it."""


class Recompiled(RuntimeError):
    """torch.compile was at work while rounds were timed. The case leaves no number."""


class Round:
    """One timed round: mark, enqueue, mark, wait. Keeps its issue and device times, and wall times it is given."""

    def __init__(self, issue: Callable[[], object], device: Device) -> None:
        self._issue, self._begin, self._end = issue, device.mark(), device.mark()
        self.wall_s: list[float] = []
        self.issue_s: list[float] = []
        self.device_s: list[float] = []

    def run(self) -> None:
        """The timed target."""
        self._begin.record()
        start = time.perf_counter()
        self._issue()
        self.issue_s.append(time.perf_counter() - start)
        self._end.record()
        self._end.wait()

    def read_marks(self) -> None:
        """Outside the timed target: take the round's device time."""
        self.device_s.append(self._end.seconds_since(self._begin))

    def clocks(self) -> Clocks:
        """What was kept."""
        return Clocks(list(self.wall_s), list(self.issue_s), list(self.device_s))

    def forget(self) -> None:
        """Drop what the warm-up left."""
        for clock in (self.wall_s, self.issue_s, self.device_s):
            clock.clear()


def measure(
    benchmark: Benchmark,
    issue: Callable[[], object],
    device: Device,
    budget_s: float,
    baseline: Callable[[], object] | None = None,
    beside: Switch | None = None,
) -> Measurement:
    """Time `issue` for as many rounds as fit into the budget.

    The first run warms this very shape up (kernels load, plans are chosen); the second is the pilot that sets the
    number of rounds. Rounds are never dropped.

    Parameters
    ----------
    benchmark : Benchmark
        The test's `benchmark` fixture, unused so far.
    issue : callable
        Enqueues the work and returns; it must not wait.
    budget_s : float
        Seconds for warm-up and rounds together; at least `MIN_ROUNDS` rounds are run even so.
    baseline : callable, optional
        Another issue, run once for each round: before it in even rounds, behind it in odd ones, so that drift falls on
        both alike. Its clocks are kept apart, in the order of the rounds.
    beside : Switch, optional
        What runs beside every timed round and beside none of the baseline's; it is switched between rounds.

    Raises
    ------
    Recompiled
        If anything was compiled between the first and the last round.
    """
    timed, other = Round(issue, device), None if baseline is None else Round(baseline, device)
    pair = _Pair(timed, other, beside)
    with device.on_stream():
        warm_s, pilot_s = _seconds(pair.run_both), _seconds(pair.run_both)
        rounds = rounds_within(budget_s - warm_s - pilot_s, pilot_s)
        pair.forget()
        before, compiled = device.allocation_counts(), compilations()
        benchmark.pedantic(timed.run, setup=pair.before, teardown=pair.behind, rounds=rounds, iterations=1)
        pair.pause_beside()
        after = device.allocation_counts()
    if compilations() != compiled:
        raise Recompiled(f"torch.compile ran {compilations() - compiled} times while rounds were timed")
    wall_s = list(timed.issue_s) if benchmark.disabled else [float(value) for value in benchmark.stats.stats.data]
    moved = [
        f"{name} moved from {before[name]} to {after[name]} while rounds ran"
        for name in before
        if before[name] != after[name]
    ]
    clocks = Clocks(wall_s, list(timed.issue_s), list(timed.device_s))
    return Measurement(clocks, moved, other.clocks() if other else None)


class _Pair:
    """A round and the baseline's beside it, turn about."""

    def __init__(self, timed: Round, other: Round | None, beside: Switch | None) -> None:
        self._timed, self._other, self._beside, self._count = timed, other, beside, 0

    def before(self) -> None:
        if self._count % 2 == 0:
            self._run_other()
        self._resume_beside()

    def behind(self) -> None:
        self._timed.read_marks()
        if self._count % 2 == 1:
            self._run_other()
        self._count += 1

    def run_both(self) -> None:
        self._run_other()
        self._resume_beside()
        self._timed.run()

    def forget(self) -> None:
        for each in (self._timed, self._other):
            if each:
                each.forget()

    def pause_beside(self) -> None:
        if self._beside:
            self._beside.pause()

    def _resume_beside(self) -> None:
        if self._beside:
            self._beside.resume()

    def _run_other(self) -> None:
        if self._other:
            self.pause_beside()
            start = time.perf_counter()
            self._other.run()
            self._other.wall_s.append(time.perf_counter() - start)
            self._other.read_marks()


def best_seconds(issue: Callable[[], object], device: Device, rounds: int = 3) -> float:
    """Wall seconds of the fastest of a few rounds, after one to warm up: for choices, not for results.

    One round is enough of what takes `LONG_ROUND_S`: a choice must not cost more than what is chosen.
    """
    timed = Round(issue, device)
    with device.on_stream():
        timed.run()
        best = _seconds(timed.run)
        return min([best, *(_seconds(timed.run) for _ in range(rounds - 1) if best < LONG_ROUND_S)])


def rounds_within(seconds: float, round_s: float) -> int:
    """Rounds of `round_s` seconds that fit into `seconds`, at least MIN_ROUNDS and at most MAX_ROUNDS."""
    fit = int(seconds / round_s) if round_s > 0 else MAX_ROUNDS
    return max(MIN_ROUNDS, min(MAX_ROUNDS, fit))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
