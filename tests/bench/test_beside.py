"""Work that runs beside rounds: on when it should be, off when it should be, and over when its case is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from bench.beside import running_beside
from bench.measure import measure
from kernels.device import open_device
from tests.bench.fakes import FakeBenchmark

WAIT_S = 20


class Work:
    """Issued again and again: a millisecond on the device, or in the thread that issues it."""

    def __init__(self, enqueued: bool) -> None:
        self.begun, self.ended, self.device, self._enqueued = 0, 0, open_device("cpu").sibling(), enqueued

    def issue(self) -> None:
        self.begun += 1
        if self._enqueued:
            self.device.enqueue(self._run)
        else:
            self._run()

    def _run(self) -> None:
        time.sleep(0.001)
        self.ended += 1

    def runs_again(self) -> None:
        """Back once a run that begins from now on has ended."""
        begun, stop = self.begun, time.monotonic() + WAIT_S
        while self.ended <= begun:
            assert time.monotonic() < stop, "nothing ran beside"
            time.sleep(0.0005)

    def assert_rests(self) -> None:
        before = self.ended
        assert self.begun == before
        time.sleep(0.005)
        assert self.begun == self.ended == before


@pytest.fixture(params=["copies", "computes"])
def work(request: pytest.FixtureRequest) -> Work:
    return Work(enqueued=request.param == "copies")


def besides() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("beside")]


def test_it_runs_from_resume_to_pause_and_not_outside(work: Work) -> None:
    with running_beside(work.issue, work.device) as beside:
        work.assert_rests()
        for _ in range(3):
            beside.resume()
            assert work.begun > 0
            work.runs_again()
            beside.pause()
            work.assert_rests()
        beside.pause()
        work.assert_rests()
    assert besides() == []


def test_it_runs_beside_every_timed_round_and_beside_no_baseline(work: Work) -> None:
    benchmark, device = FakeBenchmark(), open_device("cpu")
    with running_beside(work.issue, work.device) as beside:
        measured = measure(benchmark, work.runs_again, device, 0.1, work.assert_rests, beside)
        work.assert_rests()  # measure leaves it off
        runs = beside.runs_since(benchmark.rounds)
    assert benchmark.rounds <= runs < work.ended  # more ran before the rounds began
    assert measured.baseline is not None
    assert len(measured.clocks.wall_s) == len(measured.baseline.wall_s) == benchmark.rounds


def test_switching_is_outside_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def take(seconds: float) -> None:
        now[0] += seconds

    class Slow:
        def resume(self) -> None:
            take(100)

        pause = resume

    cpu = open_device("cpu")
    measured = measure(FakeBenchmark(), lambda: take(2), cpu, 1, lambda: take(1), Slow())
    assert measured.baseline is not None
    for clocks, seconds in ((measured.clocks, 2), (measured.baseline, 1)):
        assert {*clocks.wall_s, *clocks.issue_s, *clocks.device_s} == {seconds}


def test_without_a_baseline_it_runs_all_the_time(work: Work) -> None:
    with running_beside(work.issue, work.device) as beside:
        measure(FakeBenchmark(), work.runs_again, open_device("cpu"), 0.05, beside=beside)


def switched(issue: Callable[[], None], times: int) -> None:
    device = open_device("cpu").sibling()
    with running_beside(issue, device) as beside:
        for _ in range(times):
            beside.resume()
            beside.pause()


@pytest.mark.parametrize("after", [0, 3])
def test_what_goes_wrong_beside_is_raised_by_a_switch(after: int) -> None:
    left = iter(range(after))

    def issue() -> None:
        if next(left, None) is None:
            raise OSError("no link")

    with pytest.raises(OSError, match="no link"):
        switched(issue, 5)
    assert besides() == []


def test_copies_that_fail_on_the_sibling_are_an_error_too() -> None:
    device = open_device("cpu").sibling()

    def copy() -> None:
        raise OSError("no link")

    def run() -> None:
        with running_beside(lambda: device.enqueue(copy), device) as beside:
            beside.resume()
            beside.pause()

    with pytest.raises(OSError, match="no link"):
        run()


def test_a_run_that_fails_in_the_last_round_leaves_no_measurement() -> None:
    device, timed = open_device("cpu"), iter(("warm-up", "pilot", "round"))
    fail, failed = threading.Event(), threading.Event()

    def issue() -> None:
        if fail.is_set():
            failed.set()
            raise OSError("no link")

    def last_round_sees_it_fail() -> None:
        if next(timed) == "round":
            fail.set()
            assert failed.wait(WAIT_S)

    def run() -> None:
        with running_beside(issue, device.sibling()) as beside:
            measure(FakeBenchmark(disabled=True), last_round_sees_it_fail, device, 0.01, beside=beside)
            pytest.fail("it was measured")

    with pytest.raises(OSError, match="no link"):
        run()


def test_a_case_that_fails_ends_it_and_keeps_its_own_error(work: Work) -> None:
    def run() -> None:
        with running_beside(work.issue, work.device) as beside:
            beside.resume()
            raise ValueError("the case's own")

    with pytest.raises(ValueError, match="the case's own"):
        run()
    assert besides() == []
    work.assert_rests()
