"""A copy made ready to be timed: its plan, its issue, and how to verify it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from bench.verify import Carried
from bench.workbench import Placed
from kernels import copy_methods, copy_plan
from kernels.copy_methods import Issue
from kernels.copy_plan import CopyPlan, Direction
from kernels.device import Device

FACTS = ("staging_bytes", "copies", "launches", "programs", "word_bytes")


@dataclass(frozen=True, eq=False)
class Transfer:
    """One direction of a copy by one method.

    Attributes
    ----------
    prepare_s : float
        Seconds spent building the plan, and building and uploading descriptors.
    """

    carried: Carried
    plan: CopyPlan
    issue: Issue
    prepare_s: float

    def facts(self) -> dict[str, Any]:
        """What the method says of its way: staging bytes, copies, launches; whatever of these it has."""
        return {fact: getattr(self.issue, fact) for fact in FACTS if hasattr(self.issue, fact)}


def make_transfer(method: str, direction: Direction, placed: Placed, part: slice, device: Device) -> Transfer:
    """Plan and prepare the copy of `part` of the placed blocks."""
    device_ids, host_ids = placed.device_ids[part], placed.host_ids[part]
    out = Carried(placed.device, device_ids, placed.host, host_ids)
    carried = out if direction == "swap_out" else _reversed(out)
    start = time.perf_counter()
    plan = copy_plan.build(carried.src, carried.src_ids, carried.dst, carried.dst_ids)
    issue = copy_methods.find(method).prepare(plan, device)
    device.wait()
    return Transfer(carried, plan, issue, time.perf_counter() - start)


def _reversed(carried: Carried) -> Carried:
    return Carried(carried.dst, carried.dst_ids, carried.src, carried.src_ids)
