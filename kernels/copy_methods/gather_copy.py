"""gather_copy: a kernel packs fragments into a staging buffer on the device and few large copies cross the link.

LMCache and FlexKV do so. Swapping in is the mirror: large copies into staging, then a kernel that scatters. The buffer
has two halves, so that the kernel works on one while the other crosses the link. Fragments are packed in the order of
their host addresses: a stretch of host memory is one copy for each half it goes through, and a plan makes at most
`bytes / half + 1` copies if its host side is one stretch. **Each further stretch of the host costs a copy of its own**
(from the compiled loop of `memcpy_loop`, whatever the driver offers), so where the host is as scattered as the device
the kernel is only an extra; `copies` of the issue says how many there are.

On a CPU the same steps are `memmove`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernels import staging
from kernels.copy_methods import memcpy_loop
from kernels.copy_plan import CopyPlan
from kernels.cuda_driver import DriverError
from kernels.device import Device, check_fits
from kernels.pieces import Descriptors
from kernels.triton_probe import no_kernels

STAGING_BYTES = 64 << 20  # both halves; LMCache stages chunks of 256 tokens, 32 MiB of an 8B model
PROGRAMS_A_MULTIPROCESSOR = 4  # of 256 threads: half of what one holds, enough to saturate its memory

Step = Callable[[], None]


@dataclass(frozen=True, eq=False)
class GatherIssue:
    """Enqueues kernels on torch's current stream, which must be the device's (`device.on_stream()`), copies beside it.

    All of it is ordered between what that stream held before and what comes after.

    Attributes
    ----------
    copies : int
        Copies across the link.
    launches : int
        Kernels, one for each time that a half is filled; on a CPU the number of packings.
    staging_bytes, half_bytes : int
        Device memory of the buffer, and bytes of a half, which is the largest copy.
    table_bytes : int
        Device memory of the uploaded addresses; 0 on a CPU.
    word_bytes : int
        Bytes a thread moves at once; 0 on a CPU.
    """

    copies: int
    launches: int
    staging_bytes: int
    half_bytes: int
    table_bytes: int
    word_bytes: int
    _buffer: torch.Tensor
    _order: staging.Order
    _steps: tuple[tuple[Step, Step], ...]  # what fills a half, what empties it

    def __call__(self) -> None:
        """Enqueue; `DriverError` if the driver refuses a copy."""
        order, half = self._order, 0
        order.begin()
        for number, (fill, empty) in enumerate(self._steps):
            half = number % 2
            if number >= 2:
                order.before_filling(half)
            fill()
            order.between(half)
            empty()
            order.after_emptying(half)
        if self._steps:
            order.end(half)


def unavailable(device: Device) -> str | None:
    """Needs numba for its loop, and on CUDA Triton kernels that load."""
    return memcpy_loop.unavailable(device) or (None if device.backend == "cpu" else no_kernels(device))


def prepare(plan: CopyPlan, device: Device, staging_bytes: int = STAGING_BYTES) -> GatherIssue:
    """Cut the plan into chunks, allocate the buffer, upload addresses and compile.

    Parameters
    ----------
    staging_bytes : int
        Device memory for both halves; a plan that fits into one half takes only what it needs.

    Raises
    ------
    ValueError
        If `staging_bytes` is too small for two halves.
    DoesNotFit
        If the device has no room for the buffer.
    """
    half = staging.half_bytes(staging_bytes)
    size = min(2 * half, plan.nbytes)
    check_fits(device, size, 0, "the staging buffer of gather_copy")
    buffer = device.empty(size)
    chunks = staging.chunks(plan, buffer.data_ptr(), half)
    out = plan.direction == "swap_out"
    order = staging.order(device, kernel_first=out)
    kernels, table_bytes, word = _kernels([chunk.fragments for chunk in chunks], plan, device)
    links = [_loop(chunk.runs, plan.direction, device, order.link_stream) for chunk in chunks]
    return GatherIssue(
        copies=sum(len(chunk.runs) for chunk in chunks),
        launches=len(chunks),
        staging_bytes=size,
        half_bytes=half,
        table_bytes=table_bytes,
        word_bytes=word,
        _buffer=buffer,
        _order=order,
        _steps=tuple(zip(kernels, links, strict=True) if out else zip(links, kernels, strict=True)),
    )


def _kernels(parts: list[Descriptors], plan: CopyPlan, device: Device) -> tuple[list[Step], int, int]:
    """What packs or unpacks each part, bytes of its tables, and bytes of its word."""
    if device.backend == "cpu":
        return [_loop(part, plan.direction, device, 0) for part in parts], 0, 0
    if not parts:
        return [], 0, 0
    from kernels import triton_copy

    facts = device.facts() or {}
    made = triton_copy.launches(parts, device, PROGRAMS_A_MULTIPROCESSOR * int(facts["multiprocessors"]))
    table_bytes = sum(launch.table.numel() * launch.table.element_size() for launch in made)
    return list(made), table_bytes, made[0].word


def _loop(copies: Descriptors, direction: str, device: Device, stream: int) -> Step:
    """One copy after another, from a compiled loop."""
    loop = memcpy_loop.compiled_loop(direction, device)
    dst, src, sizes = copies.dst, copies.src, copies.sizes

    def step() -> None:
        failed = loop(dst, src, sizes, stream)
        if failed >= 0:
            raise DriverError(f"the driver refused copy {failed} of {len(sizes)} ({direction})")

    return step
