"""direct_kernel: a kernel with few programs reads or writes pinned host memory itself, in both directions.

SGLang's kernel backend, LMCache and vLLM's Triton path do so: no copy engine, no staging, but multiprocessors that
compute would otherwise have. How many is the trade: more saturate the link, fewer disturb (sglang#37117 found that
too few only take longer). 16 programs of 256 threads is what vLLM (12) and SGLang (2 blocks of 1,024 threads) are near.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels import cuda_driver
from kernels.copy_plan import CopyPlan
from kernels.device import Device
from kernels.pieces import Descriptors
from kernels.triton_probe import no_kernels

PROGRAMS = 16


@dataclass(frozen=True, eq=False)
class DirectIssue:
    """Enqueues the plan's only launch on torch's current stream, which must be the device's (`device.on_stream()`).

    Attributes
    ----------
    launches : int
        1, or 0 for an empty plan.
    programs : int
        Programs of the launch: what was asked for, fewer where there is less to share.
    word_bytes, piece_bytes : int
        Bytes a thread moves at once, and bytes of a full piece; 0 for an empty plan.
    table_bytes : int
        Device memory of the uploaded addresses.
    """

    launches: int
    programs: int
    word_bytes: int
    piece_bytes: int
    table_bytes: int
    _launch: Callable[[], None]

    def __call__(self) -> None:
        """Enqueue."""
        self._launch()


def unavailable(device: Device) -> str | None:
    """Needs a CUDA device on which Triton kernels load."""
    return no_kernels(device)


def prepare(plan: CopyPlan, device: Device, programs: int = PROGRAMS) -> DirectIssue:
    """Cut the plan into pieces, upload their addresses and compile the kernel.

    Raises
    ------
    ValueError
        If `programs` is below 1.
    DriverError
        If the host side is not pinned and mapped.
    """
    if programs < 1:
        raise ValueError(f"programs: {programs}; a kernel needs 1 or more")
    if plan.nbytes == 0:
        return DirectIssue(0, 0, 0, 0, 0, lambda: None)
    from kernels import triton_copy

    (launch,) = triton_copy.launches([_as_the_device_sees_them(plan)], device, programs)
    table_bytes = launch.table.numel() * launch.table.element_size()
    return DirectIssue(1, launch.programs, launch.word, launch.piece_bytes, table_bytes, launch)


def _as_the_device_sees_them(plan: CopyPlan) -> Descriptors:
    """The plan's descriptors with the host side's addresses as kernels must use them.

    On Linux they are the host's own; under WSL they may differ (FreeToken#233), so the driver is asked.
    """
    arena = plan.dst_arena if plan.direction == "swap_out" else plan.src_arena
    host = arena.data_ptr()
    shift = np.uint64((cuda_driver.device_address(host) - host) % (1 << 64))
    if plan.direction == "swap_out":
        return Descriptors(plan.src, plan.dst + shift, plan.sizes)
    return Descriptors(plan.src + shift, plan.dst, plan.sizes)
