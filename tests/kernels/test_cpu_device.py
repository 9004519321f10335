"""The CPU's sibling: work runs in another thread, in order, and nobody overtakes it who follows."""

from __future__ import annotations

import threading

import pytest

from kernels.device import open_device

WAIT_S = 60


def test_there_is_one_sibling_and_it_has_a_thread_of_its_own() -> None:
    device, threads = open_device("cpu"), []
    beside = device.sibling()
    assert device.sibling() is beside
    for where in (device, beside, beside):
        where.enqueue(lambda: threads.append(threading.get_ident()))
    device.wait()
    assert threads[0] == threading.get_ident() != threads[1] == threads[2]
    assert (device.runs_at_once, beside.runs_at_once) == (True, False)


def test_enqueueing_does_not_wait_and_following_does() -> None:
    device, gate, seen = open_device("cpu"), threading.Event(), []
    beside = device.sibling()
    beside.follow(device)
    beside.enqueue(lambda: gate.wait(WAIT_S) and seen.append("first"))
    beside.enqueue(lambda: seen.append("second"))
    assert not seen
    threading.Timer(0.1, gate.set).start()
    device.follow(beside)
    assert seen == ["first", "second"]


@pytest.mark.parametrize("way", ["wait", "on_stream"])
def test_waiting_and_working_on_the_sibling_come_behind_what_it_holds(way: str) -> None:
    device, gate, seen = open_device("cpu"), threading.Event(), []
    beside = device.sibling()
    beside.enqueue(lambda: gate.wait(WAIT_S) and seen.append("copy"))
    threading.Timer(0.1, gate.set).start()
    if way == "wait":
        device.wait()
    else:
        with beside.on_stream():
            pass
    assert seen == ["copy"]


def test_a_mark_lies_behind_what_was_enqueued_before_it() -> None:
    device, gate = open_device("cpu"), threading.Event()
    beside = device.sibling()
    begin, end = beside.mark(), beside.mark()
    begin.record()
    beside.enqueue(lambda: gate.wait(WAIT_S))
    end.record()
    threading.Timer(0.1, gate.set).start()
    end.wait()
    assert gate.is_set()
    assert end.seconds_since(begin) > 0


def test_the_first_error_is_raised_once_everything_has_ended() -> None:
    device, seen = open_device("cpu"), []
    beside = device.sibling()

    def fail() -> None:
        raise OSError("no link")

    beside.enqueue(fail)
    beside.enqueue(lambda: seen.append("after"))
    with pytest.raises(OSError, match="no link"):
        device.follow(beside)
    assert seen == ["after"]
    device.wait()
