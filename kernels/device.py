"""The only file that asks "cuda or cpu?": stream, marks in time, memory, and what the device is.

A `Device` owns one stream that everything timed runs on. On CUDA it is a side stream: the legacy default stream
refuses `cuMemcpyBatchAsync`, and events of one stream say nothing about work on another. On the CPU work runs at once,
in the calling thread, and a mark is a clock reading; only what is enqueued on a sibling runs beside, in a thread of its
own.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import torch

from kernels import cuda_driver

Backend = Literal["cuda", "cpu"]
T = TypeVar("T")


class DoesNotFit(ValueError):
    """Memory asked for that the device or the host does not have. Raised before anything is allocated."""


class PinRefused(RuntimeError):
    """The driver refuses to pin host memory (WSL, confidential computing, a low memlock limit)."""


class NotCaptured(RuntimeError):
    """Work that cannot be recorded to be issued again in one call."""


class Mark(Protocol):
    """A point in time on the stream."""

    def record(self) -> None:
        """Place the mark behind everything enqueued so far."""

    def wait(self) -> None:
        """Block the host until the device has passed the mark."""

    def seconds_since(self, earlier: Any) -> float:
        """Device seconds between two marks that have been passed."""


@dataclass(frozen=True, eq=False)
class HostMemory:
    """Host memory that copies can run from and to.

    Attributes
    ----------
    tensor : torch.Tensor
        uint8, one-dimensional, every page touched.
    pinned_by : str
        "cudaHostRegister", "cudaHostAlloc", or "none" (CPU backend).
    """

    tensor: torch.Tensor
    pinned_by: str


class Device(Protocol):
    """What the rest of the suite knows of a backend."""

    backend: Backend
    torch_device: torch.device
    stream_handle: int
    runs_at_once: bool
    """What is issued here is done when issuing returns: what shall run beside it must be enqueued before it."""

    def on_stream(self) -> Any:
        """Context manager: torch work inside goes to the device's own stream."""

    def enqueue(self, issue: Callable[[], object]) -> None:
        """Call `issue` so that its work goes to the device's own stream, behind all that it holds.

        Copies alone may be enqueued on a CPU's sibling: its thread has none of the caller's torch modes.
        """

    def capture(self, issue: Callable[[], T]) -> tuple[Callable[[], None], T]:
        """Run `issue`, then record it: what enqueues it all in one call, and what it returned. Raises NotCaptured."""

    def mark(self) -> Mark:
        """A new mark on the device's stream."""

    def wait(self) -> None:
        """Block the host until everything enqueued on the device is done."""

    def sibling(self) -> Device:
        """The same device with a stream of its own, for work that runs beside; always the same one.

        torch hands out 32 streams in turn: a new one for every case would soon be the device's own.
        """

    def follow(self, other: Any) -> None:
        """What is enqueued here from now on waits for all that a sibling holds now."""

    def free_bytes(self) -> tuple[int, int]:
        """Bytes free on the device and on the host, as far as known."""

    def empty(self, nbytes: int) -> torch.Tensor:
        """uint8 device memory of `nbytes` bytes, one-dimensional."""

    def host_memory(self, nbytes: int) -> HostMemory:
        """Pinned (on CUDA) host memory of `nbytes` bytes. Raises PinRefused."""

    def allocation_counts(self) -> dict[str, int]:
        """Counters that must not move while rounds are timed."""

    def facts(self) -> dict[str, Any] | None:
        """Name and limits of the GPU as torch knows them; None on a CPU."""


class _CudaMark:
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def record(self) -> None:
        self._event.record(self._stream)

    def wait(self) -> None:
        self._event.synchronize()

    def seconds_since(self, earlier: _CudaMark) -> float:
        return float(earlier._event.elapsed_time(self._event)) / 1e3  # torch gives milliseconds


class _CudaDevice:
    backend: Backend = "cuda"
    runs_at_once = False

    def __init__(self, name: str) -> None:
        self.torch_device = torch.device(name if ":" in name else f"cuda:{torch.cuda.current_device()}")
        torch.cuda.set_device(self.torch_device)
        self.stream = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        self.stream_handle: int = self.stream.cuda_stream
        self._fence: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._sibling: Device | None = None

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        with torch.cuda.stream(self.stream):
            yield

    def enqueue(self, issue: Callable[[], object]) -> None:
        with self.on_stream():
            issue()

    def capture(self, issue: Callable[[], T]) -> tuple[Callable[[], None], T]:
        self.enqueue(issue)  # kernels load and libraries take their workspaces on this very stream (pytorch#187745)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                output = issue()
        except RuntimeError as error:  # ending a capture that failed fails too: the first error is the reason
            first = error.__context__ or error
            raise NotCaptured(f"{type(first).__name__}: {next(iter(str(first).splitlines()), '')}") from error
        return graph.replay, output

    def mark(self) -> Mark:
        return _CudaMark(self.stream)

    def wait(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def sibling(self) -> Device:
        if self._sibling is None:
            self._sibling = _CudaDevice(str(self.torch_device))
        return self._sibling

    def follow(self, other: _CudaDevice) -> None:
        other._fence.record(other.stream)
        self.stream.wait_event(other._fence)

    def free_bytes(self) -> tuple[int, int]:
        free, _ = torch.cuda.mem_get_info(self.torch_device)
        cached = torch.cuda.memory_reserved(self.torch_device) - torch.cuda.memory_allocated(self.torch_device)
        return free + cached, host_free_bytes()

    def empty(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self.torch_device)

    def host_memory(self, nbytes: int) -> HostMemory:
        """Pinned memory of exactly `nbytes`.

        Registering memory that is already touched keeps its size and its NUMA node; torch's own pinned allocator
        rounds up to a power of two (pytorch#150517) and is the second choice, where registering is refused.
        """
        pages = np.empty(max(nbytes, 1), dtype=np.uint8)
        pages.fill(0)
        if cuda_driver.host_register(pages.ctypes.data, pages.nbytes):
            # The tensor holds the array, so that pages are given back before their addresses serve anything else.
            weakref.finalize(pages, cuda_driver.host_unregister, pages.ctypes.data).atexit = False
            return HostMemory(torch.from_numpy(pages)[:nbytes], "cudaHostRegister")
        del pages
        try:
            tensor = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=True)
        except (torch.OutOfMemoryError, RuntimeError) as refusal:
            cuda_driver.clear_error()
            reason = str(refusal).splitlines()[0]
            raise PinRefused(f"the driver pins no {nbytes:,} bytes of host memory: {reason}") from refusal
        return HostMemory(tensor, "cudaHostAlloc")

    def allocation_counts(self) -> dict[str, int]:
        """CudaMalloc and cudaHostAlloc calls, and retries after running out of memory."""
        device, host = torch.cuda.memory_stats(self.torch_device), torch.cuda.host_memory_stats()
        counts = {name: int(device.get(name, 0)) for name in ("num_device_alloc", "num_alloc_retries", "num_ooms")}
        return counts | {"num_host_alloc": int(host.get("num_host_alloc", 0))}

    def facts(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(self.torch_device)
        return {
            "name": properties.name,
            "memory_bytes": int(properties.total_memory),
            "compute_capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": int(properties.multi_processor_count),
            "uuid": str(getattr(properties, "uuid", "")) or None,
            "integrated": bool(getattr(properties, "is_integrated", False)),
        }


def open_device(name: str = "auto") -> Device:
    """The device called `name`: "auto" (CUDA if there is one), "cpu", "cuda" or "cuda:N".

    Raises
    ------
    ValueError
        If the name is none of these, or CUDA was asked for and torch finds none, with torch's reason.
    """
    if default_backend(name) == "cpu":
        from kernels.cpu_device import CpuDevice

        return CpuDevice()
    name = "cuda" if name == "auto" else name
    index = name.partition(":")[2]
    if not torch.cuda.is_available():
        built = f"a CUDA {torch.version.cuda} build" if torch.version.cuda else "a build without CUDA"
        raise ValueError(f"device {name!r}: torch {torch.__version__} ({built}) finds no usable GPU or driver")
    if index and int(index) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r}: torch sees {torch.cuda.device_count()} GPU(s)")
    return _CudaDevice(name)


def default_backend(name: str = "auto") -> Backend:
    """The backend that a device's name stands for; ValueError lists the known names. Opens nothing."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if name != "cpu" and (kind != "cuda" or not (index.isdecimal() or name == "cuda")):
        raise ValueError(f"unknown device {name!r}; known: auto, cpu, cuda, cuda:N")
    return "cpu" if name == "cpu" else "cuda"


def check_fits(device: Device, device_bytes: int, host_bytes: int, what: str) -> None:
    """Refuse memory that is not there, before anything is allocated.

    Parameters
    ----------
    device_bytes, host_bytes : int
        What is about to be allocated on either side. On a CPU backend both come out of the same memory.

    Raises
    ------
    DoesNotFit
        With the bytes asked for and the bytes free.
    """
    free_device, free_host = device.free_bytes()
    if device.backend == "cpu":
        device_bytes, host_bytes = 0, device_bytes + host_bytes
    for side, asked, free in (("device", device_bytes, free_device), ("host", host_bytes, free_host)):
        if asked > free:
            raise DoesNotFit(f"{what} needs {asked:,} bytes of {side} memory; {free:,} are free")


def host_free_bytes() -> int:
    """Bytes of host memory a process may still take: MemAvailable, or what its cgroup leaves, whichever is less."""
    free = host_total_bytes()
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return free


def host_total_bytes() -> int:
    """Bytes of memory the host has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
