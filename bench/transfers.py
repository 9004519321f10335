"""A copy made ready to be timed: its plan, its issue, and how to verify it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from bench.cases import OPTIONS, Case
from bench.verify import Carried
from bench.workbench import Placed
from kernels import copy_methods, copy_plan
from kernels.copy_methods import Issue
from kernels.copy_plan import CopyPlan, Direction
from kernels.device import Device

FACTS = (
    "calls",
    "copies",
    "launches",
    "programs",
    "word_bytes",
    "piece_bytes",
    "staging_bytes",
    "table_bytes",
    "flags",
)


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


def make_transfer(case: Case, direction: Direction, placed: Placed, part: slice, device: Device) -> Transfer:
    """Plan and prepare the copy of `part` of the placed blocks, by the case's method and its options."""
    assert case.method is not None
    options = {name: value for name in OPTIONS if (value := getattr(case, name)) is not None}
    device_ids, host_ids = placed.device_ids[part], placed.host_ids[part]
    out = Carried(placed.device, device_ids, placed.host, host_ids)
    carried = out if direction == "swap_out" else _reversed(out)
    start = time.perf_counter()
    plan = copy_plan.build(carried.src, carried.src_ids, carried.dst, carried.dst_ids)
    issue = copy_methods.find(case.method).prepare(plan, device, **options)
    device.wait()
    return Transfer(carried, plan, issue, time.perf_counter() - start)


def _reversed(carried: Carried) -> Carried:
    return Carried(carried.dst, carried.dst_ids, carried.src, carried.src_ids)
