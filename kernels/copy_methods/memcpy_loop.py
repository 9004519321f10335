"""memcpy_loop: one asynchronous memcpy a descriptor, from a compiled loop.

This is vLLM's `swap_blocks` up to 0.19 and what the PagedAttention paper measured. The loop is compiled by numba over
a C function pointer, since a Python loop would add several times the cost of the call and so bias against swap.
On CUDA the function is the driver's `cuMemcpyHtoDAsync` or `cuMemcpyDtoHAsync`, on the CPU the C library's `memmove`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from kernels import cuda_driver
from kernels.copy_methods import Issue
from kernels.copy_plan import CopyPlan
from kernels.device import Device

Loop = Callable[..., int]


def unavailable(device: Device) -> str | None:
    """Needs numba for the compiled loop."""
    return None if find_spec("numba") else "numba is not installed: no compiled loop"


def prepare(plan: CopyPlan, device: Device) -> Issue:
    """Compile the loop (once a process and direction) and bind it to the plan's addresses.

    The callable raises `DriverError` with the number of the descriptor whose copy the driver refused.
    """
    loop = compiled_loop(plan.direction, device)
    dst, src, sizes, stream = plan.dst, plan.src, plan.sizes, device.stream_handle

    def issue() -> None:
        failed = loop(dst, src, sizes, stream)
        if failed >= 0:
            raise cuda_driver.DriverError(f"the driver refused copy {failed} of {len(sizes)} ({plan.direction})")

    return issue


def compiled_loop(direction: str, device: Device) -> Loop:
    """A compiled loop over descriptors: (dst, src, sizes, stream) -> number of the refused copy, or -1."""
    loop = _memmove_loop() if device.backend == "cpu" else _driver_loop(direction)
    nothing = np.empty(0, dtype=np.uint64)
    loop(nothing, nothing, nothing, device.stream_handle)  # compiles
    return loop


@cache
def _driver_loop(direction: str) -> Loop:
    copy: Any = cuda_driver.copy_function(direction)

    def loop(dst: Any, src: Any, sizes: Any, stream: Any) -> int:
        for i in range(len(sizes)):
            if copy(dst[i], src[i], sizes[i], stream) != 0:
                return i
        return -1

    return _compile(loop)


@cache
def _memmove_loop() -> Loop:
    prototype = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
    memmove: Any = prototype(ctypes.cast(ctypes.CDLL(None).memmove, ctypes.c_void_p).value or 0)

    def loop(dst: Any, src: Any, sizes: Any, stream: Any) -> int:
        for i in range(len(sizes)):
            memmove(dst[i], src[i], sizes[i])
        return -1

    return _compile(loop)


def _compile(loop: Loop) -> Loop:
    import numba

    compiled: Loop = numba.njit(nogil=True)(loop)
    return compiled
