"""The CPU as a `kernels.device.Device`: work in the calling thread, and on a sibling in a thread beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch

from kernels.device import Backend, Device, HostMemory, Mark, NotCaptured, T, host_free_bytes


class _CpuMark:
    def __init__(self, device: CpuDevice) -> None:
        self._device = device
        self._seconds = 0.0

    def record(self) -> None:
        self._device.enqueue(self._read)

    def wait(self) -> None:
        self._device.finish()

    def seconds_since(self, earlier: _CpuMark) -> float:
        return self._seconds - earlier._seconds

    def _read(self) -> None:
        self._seconds = time.perf_counter()


class CpuDevice:
    """Work in the calling thread, done when it returns."""

    backend: Backend = "cpu"
    stream_handle: int = 0
    runs_at_once = True

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        self._sibling: CpuSibling | None = None

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Context manager: work inside runs behind all that this stream holds."""
        self.finish()
        yield

    def enqueue(self, issue: Callable[[], object]) -> None:
        """Call `issue`."""
        issue()

    def capture(self, issue: Callable[[], T]) -> tuple[Callable[[], None], T]:
        """NotCaptured: work runs when it is issued."""
        raise NotCaptured("a CPU runs what is issued at once")

    def finish(self) -> None:
        """Wait for what this stream holds: nothing is ever pending in the calling thread."""

    def mark(self) -> Mark:
        """A clock reading behind what this stream holds."""
        return _CpuMark(self)

    def wait(self) -> None:
        """Wait for this stream and its sibling's."""
        self.finish()
        if self._sibling is not None:
            self._sibling.wait()

    def sibling(self) -> Device:
        """A stream of its own, in a thread of its own; always the same one."""
        if self._sibling is None:
            self._sibling = CpuSibling()
        return self._sibling

    def follow(self, other: CpuDevice) -> None:
        """The host waits for the other's work; what a sibling is given after this runs behind it."""
        other.finish()

    def free_bytes(self) -> tuple[int, int]:
        """Both sides are the same memory."""
        free = host_free_bytes()
        return free, free

    def empty(self, nbytes: int) -> torch.Tensor:
        """Ordinary memory."""
        return torch.empty(nbytes, dtype=torch.uint8)

    def host_memory(self, nbytes: int) -> HostMemory:
        """Ordinary memory, every page touched."""
        return HostMemory(torch.zeros(nbytes, dtype=torch.uint8), "none")

    def allocation_counts(self) -> dict[str, int]:
        """Nothing is counted."""
        return {}

    def facts(self) -> None:
        """There is no GPU."""
        return None


class CpuSibling(CpuDevice):
    """What is enqueued runs in one thread, in order; numba's loop and torch's copies release the GIL for that."""

    runs_at_once = False

    def __init__(self) -> None:
        super().__init__()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="copies")
        self._pending: list[Future[object]] = []

    def enqueue(self, issue: Callable[[], object]) -> None:
        """Submit `issue` to the thread; what it raises is raised by `finish`."""
        self._pending.append(self._thread.submit(issue))

    def finish(self) -> None:
        """Wait for all that was enqueued, and raise the first error of it."""
        pending, self._pending = self._pending, []
        for work in pending:
            work.exception()
        for work in pending:
            work.result()
