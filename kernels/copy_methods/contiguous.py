"""contiguous: one copy of the same bytes in the same direction, the ceiling every other method is held against.

It is the same call as a fragment of `memcpy_loop`, on all bytes at once, and what nvbandwidth measures as well.
On a CPU it is one `memmove`: torch's `copy_` is several times slower there and would be no ceiling.
"""

from __future__ import annotations

import ctypes

from kernels import cuda_driver
from kernels.copy_methods import Issue
from kernels.copy_plan import CopyPlan
from kernels.device import Device


def unavailable(device: Device) -> str | None:
    """Runs everywhere."""
    return None


def prepare(plan: CopyPlan, device: Device) -> Issue:
    """One copy of a plan whose blocks lie side by side on both sides; ValueError if they do not."""
    plan = plan.merged()
    if plan.descriptors != 1:
        raise ValueError(f"contiguous needs one stretch of memory; this plan has {plan.descriptors:,} after merging")
    dst, src, nbytes, stream = int(plan.dst[0]), int(plan.src[0]), plan.nbytes, device.stream_handle
    if device.backend == "cpu":
        return lambda: ctypes.memmove(dst, src, nbytes)
    copy = cuda_driver.copy_function(plan.direction)

    def issue() -> None:
        cuda_driver.check(copy(dst, src, nbytes, stream), f"contiguous {plan.direction}")

    return issue
