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

MIN_ROUNDS, MAX_ROUNDS = 5, 100


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
    """Clocks of one case, and what went wrong while they ran."""

    clocks: Clocks
    suspect: list[str]


class Round:
    """One timed round: mark, enqueue, mark, wait. Keeps its issue and device times."""

    def __init__(self, issue: Callable[[], object], device: Device) -> None:
        self._issue, self._begin, self._end = issue, device.mark(), device.mark()
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

    def forget(self) -> None:
        """Drop what the warm-up left."""
        self.issue_s.clear()
        self.device_s.clear()


def measure(benchmark: Benchmark, issue: Callable[[], object], device: Device, budget_s: float) -> Measurement:
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
    """
    timed = Round(issue, device)
    with device.on_stream():
        warm_s, pilot_s = _seconds(timed.run), _seconds(timed.run)
        rounds = rounds_within(budget_s - warm_s - pilot_s, pilot_s)
        timed.forget()
        before = device.allocation_counts()
        benchmark.pedantic(timed.run, teardown=timed.read_marks, rounds=rounds, iterations=1)
        after = device.allocation_counts()
    wall_s = list(timed.issue_s) if benchmark.disabled else [float(value) for value in benchmark.stats.stats.data]
    moved = [
        f"{name} moved from {before[name]} to {after[name]} while rounds ran"
        for name in before
        if before[name] != after[name]
    ]
    return Measurement(Clocks(wall_s, list(timed.issue_s), list(timed.device_s)), moved)


def best_seconds(issue: Callable[[], object], device: Device, rounds: int = 3) -> float:
    """Wall seconds of the fastest of a few rounds, after one to warm up: for choices, not for results."""
    timed = Round(issue, device)
    with device.on_stream():
        timed.run()
        return min(_seconds(timed.run) for _ in range(rounds))


def rounds_within(seconds: float, round_s: float) -> int:
    """Rounds of `round_s` seconds that fit into `seconds`, at least MIN_ROUNDS and at most MAX_ROUNDS."""
    fit = int(seconds / round_s) if round_s > 0 else MAX_ROUNDS
    return max(MIN_ROUNDS, min(MAX_ROUNDS, fit))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
