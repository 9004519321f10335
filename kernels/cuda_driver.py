"""The few driver calls torch has no door to, found through the driver library itself; no further package is needed.

Nothing here is loaded before it is called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

Address = ctypes.c_uint64
DEVICE_POINTER = 3  # cuda.h, CU_POINTER_ATTRIBUTE_DEVICE_POINTER
CopyFunction = Callable[[int, int, int, int], int]


class DriverError(RuntimeError):
    """A driver call answered with an error code."""


@cache
def _library() -> ctypes.CDLL:
    """The driver that torch already uses (`libcuda.so.1` is its name on every Linux)."""
    return ctypes.CDLL("libcuda.so.1")


@cache
def driver_version() -> int:
    """CUDA version of the driver, 12080 for 12.8."""
    version = ctypes.c_int()
    check(_library().cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    return version.value


@cache
def entry_point(name: str, version: int) -> int | None:
    """Address of the driver function `name` as CUDA `version` (12080 for 12.8) declares it; None if it has none.

    `cuGetProcAddress` picks the variant (such as `_v2`) that belongs to the version asked for
    (CUDA driver API, section "Driver Entry Point Access").
    """
    address, status = ctypes.c_void_p(), ctypes.c_int()
    code = _library().cuGetProcAddress_v2(
        name.encode(), ctypes.byref(address), ctypes.c_int(version), ctypes.c_uint64(0), ctypes.byref(status)
    )
    return address.value if code == 0 and status.value == 0 else None


def copy_function(direction: str) -> CopyFunction:
    """One asynchronous copy between host and device as a C function: (dst, src, bytes, stream) -> error code.

    `cuMemcpyHtoDAsync` and `cuMemcpyDtoHAsync` take the direction for granted, which spares the driver the look-up of
    both addresses that `cudaMemcpyDefault` costs.
    """
    name = {"swap_in": "cuMemcpyHtoDAsync", "swap_out": "cuMemcpyDtoHAsync"}[direction]
    address = entry_point(name, 12000)
    if address is None:
        raise DriverError(f"the driver has no {name}")
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, Address, Address, ctypes.c_size_t, Address)
    return prototype(address)


def device_address(host_address: int) -> int:
    """The address by which kernels reach pinned host memory; DriverError if the memory is not pinned and mapped."""
    address = Address()
    code = _library().cuPointerGetAttribute(ctypes.byref(address), DEVICE_POINTER, Address(host_address))
    check(code, f"cuPointerGetAttribute of host memory at {host_address:#x}")
    return address.value


def check(code: int, what: str) -> None:
    """DriverError with the driver's own words unless `code` is 0."""
    if code:
        text = ctypes.c_char_p()
        _library().cuGetErrorString(code, ctypes.byref(text))
        raise DriverError(f"{what}: error {code}, {(text.value or b'unknown').decode()}")


def _runtime() -> Any:
    """The CUDA runtime calls that torch lends."""
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def host_register(address: int, nbytes: int) -> bool:
    """Pin memory that exists already; False if the driver refuses (WSL, confidential computing, memlock)."""
    code = int(_runtime().cudaHostRegister(address, nbytes, 0))
    if code:
        clear_error()
    return code == 0


def host_unregister(address: int) -> None:
    """Undo `host_register`."""
    _runtime().cudaHostUnregister(address)


def clear_error() -> None:
    """Take the runtime's last error away: a refused allocation would otherwise fail the next kernel launch.

    torch has no door to `cudaGetLastError` (WSL reports: FreeToken#233, #443).
    """
    major = (torch.version.cuda or "0").split(".")[0]
    try:
        ctypes.CDLL(f"libcudart.so.{major}").cudaGetLastError()
    except OSError:
        torch.cuda.synchronize()
