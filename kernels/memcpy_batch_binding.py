"""`cuMemcpyBatchAsync` through the driver library: a whole plan in one call, its arrays handed over as they are.

The call came with CUDA 12.8. CUDA 13 dropped its `failIdx` argument; a driver keeps the older variant too, and which
one an address stands for depends on the version asked for (CUDA driver API, "Driver Entry Point Access").
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from kernels import cuda_driver
from kernels.cuda_driver import Address
from kernels.pieces import Descriptors

FIRST_VERSION, WITHOUT_FAIL_INDEX = 12080, 13000

# cuda.h, CUmemcpySrcAccessOrder and CUmemcpyFlags; checked against the header in tests.
ORDER_STREAM, ORDER_DURING_API_CALL, ORDER_ANY = 1, 2, 3
PREFER_OVERLAP_WITH_COMPUTE = 1


class MemLocation(ctypes.Structure):
    """`CUmemLocation`. All zero: no hint; the driver ignores hints for pinned and device memory anyhow."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class MemcpyAttributes(ctypes.Structure):
    """`CUmemcpyAttributes`: how the source may be read, where both ends are, and flags."""

    _fields_ = (
        ("src_access_order", ctypes.c_int),
        ("src_location", MemLocation),
        ("dst_location", MemLocation),
        ("flags", ctypes.c_uint),
    )


def unavailable() -> str | None:
    """Why the driver has no `cuMemcpyBatchAsync`, with its version; None if it has one."""
    if _resolved() is not None:
        return None
    version = cuda_driver.driver_version()
    return f"driver for CUDA {version // 1000}.{version % 1000 // 10}: cuMemcpyBatchAsync came with CUDA 12.8"


def batch_copy(
    copies: Descriptors, direction: str, stream: int, flags: int = 0, behind_writes: bool = True
) -> Callable[[], None]:
    """A callable that enqueues all of `copies` in one driver call, with one entry of attributes.

    Parameters
    ----------
    copies : Descriptors
        At least one, none of them empty: the driver refuses both. Copies of one batch run in any order.
    stream : int
        Handle of a stream; the legacy default stream (0) is refused by the driver.
    flags : int
        0, or PREFER_OVERLAP_WITH_COMPUTE: a hint to leave the multiprocessors to kernels.
    behind_writes : bool
        The stream may write the source before it gets here, and the driver must read it after that (vllm#39306). A
        source at rest may be read whenever the driver likes.

    Raises
    ------
    DriverError
        If the driver has no such call (here), or refuses it (from the callable).
    """
    resolved = _resolved()
    if resolved is None:
        raise cuda_driver.DriverError(unavailable())
    call, has_fail_index = resolved
    count = len(copies)
    order = ORDER_STREAM if behind_writes else ORDER_ANY
    attributes, first = MemcpyAttributes(src_access_order=order, flags=flags), ctypes.c_size_t(0)
    fail_index = ctypes.c_size_t(0)
    end: tuple[Any, ...] = (ctypes.byref(fail_index), stream) if has_fail_index else (stream,)
    pointers = (copies.dst.ctypes.data, copies.src.ctypes.data, copies.sizes.ctypes.data)
    arguments = (*pointers, count, ctypes.byref(attributes), ctypes.byref(first), 1, *end)

    def issue() -> None:
        code = call(*arguments)
        if code:
            where = f" at copy {fail_index.value}" if has_fail_index and fail_index.value < count else ""
            cuda_driver.check(code, f"cuMemcpyBatchAsync of {len(copies):,} copies ({direction}){where}")

    return issue


@cache
def _resolved() -> tuple[Callable[..., int], bool] | None:
    """The call and whether it takes `failIdx`.

    The driver's own version is asked first: one of 12.8 asked for the call of 13.0 may answer with the newest variant
    it has, whose arguments are others.
    """
    version = cuda_driver.driver_version()
    for wanted in (WITHOUT_FAIL_INDEX, FIRST_VERSION):
        address = cuda_driver.entry_point("cuMemcpyBatchAsync", wanted) if version >= wanted else None
        if address is not None:
            has_fail_index = wanted == FIRST_VERSION
            pointers = (ctypes.c_void_p,) * 3
            arguments = (*pointers, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
            end = (ctypes.c_void_p, Address) if has_fail_index else (Address,)
            return ctypes.CFUNCTYPE(ctypes.c_int, *arguments, *end)(address), has_fail_index
    return None
