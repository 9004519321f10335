"""Work that keeps running on the sibling's stream while something else is timed, and can be switched off in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from kernels.device import Device


@contextmanager
def running_beside(issue: Callable[[], object], device: Device) -> Iterator[Beside]:
    """A `Beside`, not yet resumed; its thread is over when the context is left, and its error, if any, is raised."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside") as thread:
        beside = Beside(issue, device, thread)
        try:
            yield beside
        finally:
            beside.end()
        beside.check()


class Beside:
    """A thread that issues the same work again and again: issue, wait until the device is done, repeat.

    It is a `bench.measure.Switch`. All methods are for the thread that times, and no other.

    Parameters
    ----------
    issue : callable
        Puts its work on `device`'s own stream, whichever thread it is called from.
    device : Device
        Nobody else uses its stream while this runs.
    thread : ThreadPoolExecutor
        Of one thread, for this alone.
    """

    def __init__(self, issue: Callable[[], object], device: Device, thread: ThreadPoolExecutor) -> None:
        self._ended = 0
        self._ended_at_resume: list[int] = []
        self._issue, self._done = issue, device.mark()
        self._wanted, self._running, self._idle = Event(), Event(), Event()
        self._over = False
        self._idle.set()
        self._work = thread.submit(self._keep_running)
        self._work.add_done_callback(self._let_go)

    def resume(self) -> None:
        """Have it run from now on; back once its work has been issued to a stream that had nothing else to do."""
        self.check()
        self._ended_at_resume.append(self._ended)
        if not self._wanted.is_set():
            self._running.clear()
            self._wanted.set()
        self._running.wait()
        self.check()

    def pause(self) -> None:
        """Have it stop; back once the device has done all of it."""
        self._wanted.clear()
        self._idle.wait()
        self.check()

    def runs_since(self, resumes: int) -> int:
        """Runs that have ended since the last but `resumes - 1` call of `resume`: one call is one timed round."""
        return self._ended - self._ended_at_resume[-resumes]

    def end(self) -> None:
        """Stop for good; back once the thread is over. Raises nothing: `check` does."""
        self._over = True
        self._wanted.set()
        self._work.exception()

    def check(self) -> None:
        """Raise the error that ended the thread, if one did."""
        if self._work.done():
            self._work.result()

    def _keep_running(self) -> None:
        while not self._over:
            self._idle.clear()
            while self._wanted.is_set() and not self._over:
                self._run()
            self._idle.set()
            self._wanted.wait()

    def _run(self) -> None:
        self._issue()
        self._running.set()
        self._done.record()
        self._done.wait()
        self._ended += 1

    def _let_go(self, _: Future[None]) -> None:
        """Nobody waits for a thread that has ended."""
        self._running.set()
        self._idle.set()
