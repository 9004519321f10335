"""torch_copy: `dst[i].copy_(src[i], non_blocking=True)` in a Python loop, what one writes first.

Its cost a descriptor is the interpreter's and the dispatcher's, several times that of the copy call itself.
"""

from __future__ import annotations

from kernels.copy_methods import Issue
from kernels.copy_plan import Addresses, CopyPlan
from kernels.device import Device


def unavailable(device: Device) -> str | None:
    """Runs everywhere."""
    return None


def prepare(plan: CopyPlan, device: Device) -> Issue:
    """Slices of both arenas, copied one by one."""
    src, dst = plan.src_arena, plan.dst_arena
    spans = list(zip(*_spans(plan.src, plan, src.data_ptr()), *_spans(plan.dst, plan, dst.data_ptr()), strict=True))

    def issue() -> None:
        for src_start, src_stop, dst_start, dst_stop in spans:
            dst[dst_start:dst_stop].copy_(src[src_start:src_stop], non_blocking=True)

    return issue


def _spans(addresses: Addresses, plan: CopyPlan, base: int) -> tuple[list[int], list[int]]:
    starts = addresses - addresses.dtype.type(base)
    return starts.tolist(), (starts + plan.sizes).tolist()
