"""Computing and copying at once: neither waits for the other, and what follows waits for both."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kernels.device import open_device
from kernels.overlap import overlap

WAIT_S = 20


def test_each_can_wait_for_the_other_to_have_begun() -> None:
    device = open_device("cpu")
    copying, computing, copied = threading.Event(), threading.Event(), threading.Event()

    def copies() -> None:
        copying.set()
        assert computing.wait(WAIT_S), "nothing was computed meanwhile"
        copied.set()

    def compute() -> str:
        assert copying.wait(WAIT_S), "no copy had begun"
        computing.set()
        return "logits"

    assert overlap(device, compute, lambda: device.sibling().enqueue(copies)) == "logits"
    assert copied.is_set()


class Recording:
    """A device that writes down what it is asked for."""

    def __init__(self, name: str, seen: list[str], runs_at_once: bool) -> None:
        self.name, self.seen, self.runs_at_once, self.beside = name, seen, runs_at_once, self

    def sibling(self) -> Recording:
        return self.beside

    def follow(self, other: Recording) -> None:
        self.seen.append(f"{self.name} follows {other.name}")


@pytest.mark.parametrize(("runs_at_once", "first"), [(True, ["copy", "compute"]), (False, ["compute", "copy"])])
def test_what_would_hold_up_the_host_is_issued_last(runs_at_once: bool, first: list[str]) -> None:
    seen: list[str] = []
    device: Any = Recording("device", seen, runs_at_once)
    device.beside = Recording("sibling", seen, False)
    overlap(device, lambda: seen.append("compute"), lambda: seen.append("copy"))
    assert seen == ["sibling follows device", *first, "device follows sibling"]
