from __future__ import annotations

import time
from typing import Any

import pytest

from bench.measure import MAX_ROUNDS, MIN_ROUNDS, Round, measure, rounds_within
from kernels.device import open_device
from tests.bench.fakes import FakeBenchmark


class Counting:
    """A CPU device whose allocator counts up by `step` a round."""

    def __init__(self, step: int) -> None:
        self._cpu, self._step, self.count = open_device("cpu"), step, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cpu, name)

    def allocation_counts(self) -> dict[str, int]:
        self.count += self._step
        return {"num_device_alloc": self.count}


def test_three_clocks_a_round_in_order() -> None:
    slept: list[float] = []

    def issue() -> None:
        slept.append(0.002 * (1 + len(slept) % 3))
        time.sleep(slept[-1])

    benchmark = FakeBenchmark()
    clocks = measure(benchmark, issue, open_device("cpu"), budget_s=0.1).clocks
    timed = slept[-benchmark.rounds :]
    assert len(clocks.wall_s) == len(clocks.issue_s) == len(clocks.device_s) == benchmark.rounds >= MIN_ROUNDS
    for expected, wall, issued, device in zip(timed, clocks.wall_s, clocks.issue_s, clocks.device_s, strict=True):
        assert expected <= issued <= device <= wall


def test_the_warm_up_and_the_pilot_are_not_rounds() -> None:
    runs: list[None] = []
    benchmark = FakeBenchmark()
    measure(benchmark, lambda: runs.append(None), open_device("cpu"), budget_s=0.01)
    assert len(runs) == benchmark.rounds + 2


@pytest.mark.parametrize(
    ("seconds", "round_s", "expected"),
    [(1.0, 0.1, 10), (1.0, 10.0, MIN_ROUNDS), (-1.0, 0.1, MIN_ROUNDS), (1.0, 1e-9, MAX_ROUNDS), (1.0, 0.0, MAX_ROUNDS)],
)
def test_rounds_follow_the_budget(seconds: float, round_s: float, expected: int) -> None:
    assert rounds_within(seconds, round_s) == expected


def test_an_allocation_during_rounds_is_suspect() -> None:
    measured = measure(FakeBenchmark(), lambda: None, Counting(1), budget_s=0.01)
    assert measured.suspect == ["num_device_alloc moved from 1 to 2 while rounds ran"]
    assert measure(FakeBenchmark(), lambda: None, Counting(0), budget_s=0.01).suspect == []


def test_the_end_is_marked_after_the_work_and_waited_for() -> None:
    seen: list[str] = []

    class Mark:
        def __init__(self, name: str) -> None:
            self.name = name

        def record(self) -> None:
            seen.append(f"{self.name} placed")

        def wait(self) -> None:
            seen.append(f"{self.name} waited for")

    class Recording:
        names = iter(("begin", "end"))

        def mark(self) -> Mark:
            return Mark(next(self.names))

    Round(lambda: seen.append("issued"), Recording()).run()  # type: ignore[arg-type]
    assert seen == ["begin placed", "issued", "end placed", "end waited for"]


def test_disabled_benchmarks_run_once() -> None:
    benchmark = FakeBenchmark(disabled=True)
    measure(benchmark, lambda: None, open_device("cpu"), budget_s=0.01)
    assert benchmark.rounds == 1
