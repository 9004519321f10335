"""memcpy_batch_overlap: `memcpy_batch` with the hint to leave the multiprocessors to compute.

RAPIDS sets it for small copies only (rapidsmpf#1152); no KV cache project is known to sweep it.
"""

from __future__ import annotations

from kernels.copy_methods import memcpy_batch
from kernels.copy_methods.memcpy_batch import BatchIssue, unavailable
from kernels.copy_plan import CopyPlan
from kernels.device import Device
from kernels.memcpy_batch_binding import PREFER_OVERLAP_WITH_COMPUTE

__all__ = ["prepare", "unavailable"]


def prepare(plan: CopyPlan, device: Device) -> BatchIssue:
    """As `memcpy_batch.prepare`, with CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE on every copy."""
    return memcpy_batch.prepare(plan, device, PREFER_OVERLAP_WITH_COMPUTE)
