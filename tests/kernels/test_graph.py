from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from kernels.device import NotCaptured, open_device
from kernels.graph import capture


class Recording:
    """A device that records, and counts what it is asked to enqueue."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def capture(self, issue: Callable[[], object]) -> tuple[Callable[[], None], object]:
        return (lambda: self.seen.append("replayed")), issue()

    def enqueue(self, issue: Callable[[], object]) -> None:
        self.seen.append("enqueued")
        issue()


def test_a_cpu_runs_the_issue_itself_and_says_why() -> None:
    runs: list[int] = []

    def issue() -> int:
        runs.append(0)
        return len(runs)

    graph = capture(open_device("cpu"), issue)
    assert runs == []
    assert (graph.recorded, graph.refusal) == (None, "a CPU runs what is issued at once")
    assert [graph.issue(), graph.issue()] == [1, 2]


def test_a_recording_is_enqueued_in_place_of_the_issue() -> None:
    device: Any = Recording()
    made: list[object] = []

    def issue() -> object:
        made.append(object())
        return made[-1]

    graph = capture(device, issue)
    assert graph.refusal is None
    assert [graph.issue(), graph.issue()] == [made[0], made[0]]
    assert device.seen == ["enqueued", "replayed"] * 2
    assert len(made) == 1


def test_an_issue_that_fails_is_not_hidden_by_a_refusal() -> None:
    class Refusing(Recording):
        def capture(self, issue: Callable[[], object]) -> Any:
            issue()
            raise NotCaptured("it waits")

    device: Any = Refusing()
    assert capture(device, lambda: 3).refusal == "it waits"
    assert capture(device, lambda: 3).issue() == 3
    with pytest.raises(ZeroDivisionError):
        capture(device, lambda: 1 // 0)


def test_what_a_graph_reads_lives_as_long_as_it_does() -> None:
    class Held:
        def issue(self) -> None:
            pass

    device: Any = Recording()
    held = Held()
    graph, alive = capture(device, held.issue), weakref.ref(held)
    del held
    assert alive() is not None
    del graph
    assert alive() is None
