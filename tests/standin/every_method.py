"""Runs every copy method on the CUDA device of this process and prints what happened, as JSON.

`test_methods.py` starts it under a stand-in GPU: `bytes` checks what arrived, which needs TRITON_INTERPRET=1; `counts`
counts what was asked of the driver. The counters are the stand-in's own.
"""

from __future__ import annotations

import ctypes
import json
import sys
from dataclasses import fields, is_dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

from bench.verify import Ids, NotVerified, fill_random, read_blocks, verify_copy, write_blocks
from kernels import copy_methods, copy_plan, memcpy_batch_binding
from kernels.copy_methods import METHODS, Issue
from kernels.copy_plan import CopyPlan
from kernels.device import Device, open_device
from kernels.paged_kv import Geometry, Pool, block_ids
from kernels.shapes import LAYOUTS, Layout, ModelShape

SMALL = ModelShape("small", layers=3, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=8, vocab=8)
BLOCKS, TAKEN = 24, 12
HALF = 8192
COUNTS = ("copies", "bytes", "kernels", "batches")
# methods beside their defaults: staging that is filled many times over, and one program for everything
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "gather_copy": [{}, {"staging_bytes": 2 * HALF}],
    "direct_kernel": [{}, {"programs": 1}],
}


def pools(device: Device, layout: Layout) -> tuple[Pool, Pool]:
    """Blocks of 24 KiB."""
    geometry = Geometry(SMALL, "bfloat16", layout, block_size=64)
    size = BLOCKS * geometry.block_bytes
    made = (
        Pool(device.empty(size), geometry, BLOCKS, "device"),
        Pool(device.host_memory(size).tensor, geometry, BLOCKS, "host"),
    )
    for seed, pool in enumerate(made):
        fill_random(pool.arena, seed)
    return made


def counted() -> dict[str, int]:
    count = ctypes.CDLL("libcudart.so.13").fakegpu_count
    return {name: int(count(which)) for which, name in enumerate(COUNTS)}


def cases(device: Device) -> list[dict[str, Any]]:
    """Every method with its options, layout, placement of either side and direction, issued once."""
    reports = []
    for layout in LAYOUTS:
        sides = pools(device, layout)
        placements = [("contiguous",) * 2, ("scattered",) * 2, ("scattered", "contiguous"), ("runs-4", "scattered")]
        for name, (placed, host), out in product(METHODS, placements, [True, False]):
            for options in OPTIONS.get(name, [{}]):
                ids = [block_ids(placed, TAKEN, BLOCKS, 1), block_ids(host, TAKEN, BLOCKS, 2)]
                ends = list(zip(sides, ids, strict=True))[:: 1 if out else -1]
                case = {"method": name, "layout": layout, "device": placed, "host": host, "out": out, **options}
                if report := one(device, name, options, ends):
                    reports.append(case | report)
    return reports


def one(device: Device, name: str, options: dict[str, Any], ends: Any) -> dict[str, Any] | None:
    """One swap: what its issue knows of itself, what the stand-in counted, and whether the bytes arrived."""
    method, ((src, src_ids), (dst, dst_ids)) = copy_methods.find(name), ends
    if reason := method.unavailable(device):
        return {"unavailable": reason}
    plan = copy_plan.build(src, src_ids, dst, dst_ids)
    if name == "contiguous" and plan.merged().descriptors > 1:
        return None
    issue = method.prepare(plan, device, **options)
    report: dict[str, Any] = {
        "nbytes": plan.nbytes,
        "descriptors": plan.descriptors,
        "host_stretches": stretches(plan),
        "facts": facts(issue),
    }
    if sys.argv[1] == "counts":
        device.wait()
        before = counted()
        with device.on_stream():
            issue()
        device.wait()
        return report | {name: after - before[name] for name, after in counted().items()}
    try:
        verify_copy(issue, device, src, src_ids, dst, dst_ids)
    except NotVerified as wrong:
        return report | {"wrong": str(wrong)}
    if not done_by_the_end_mark(issue, device, dst, dst_ids, read_blocks(src, src_ids)):
        report["wrong"] = "bytes arrived after the end mark on the device's own stream"
    return report


def done_by_the_end_mark(issue: Issue, device: Device, dst: Pool, dst_ids: Ids, expected: torch.Tensor) -> bool:
    """Wait for nothing but a mark on the device's own stream, as the clocks do."""
    write_blocks(dst, dst_ids, torch.zeros_like(expected))
    device.wait()
    mark = device.mark()
    with device.on_stream():
        issue()
        mark.record()
    mark.wait()
    return torch.equal(read_blocks(dst, dst_ids), expected)


def facts(issue: object) -> dict[str, Any]:
    """What an issue knows of itself; a plain function knows nothing."""
    names = [field.name for field in fields(issue)] if is_dataclass(issue) else []
    return {name: getattr(issue, name) for name in names if not name.startswith("_")}


def stretches(plan: CopyPlan) -> int:
    """Stretches of host memory that the plan touches, counted one by one."""
    host = plan.dst if plan.direction == "swap_out" else plan.src
    count, end = 0, None
    for start, size in sorted(zip(host.tolist(), plan.sizes.tolist(), strict=True)):
        count, end = count + (start != end), start + size
    return count


def main() -> None:
    device = open_device("cuda")
    resolved = memcpy_batch_binding._resolved()
    fail_index = None if resolved is None else resolved[1]
    nothing = np.zeros(0, dtype=np.int64)
    empty = []
    src, dst = pools(device, "cross_layer")
    for name in METHODS:
        method = copy_methods.find(name)
        if name != "contiguous" and method.unavailable(device) is None:
            issue = method.prepare(copy_plan.build(src, nothing, dst, nothing), device)
            before = counted()
            with device.on_stream():
                issue()
            if counted() != before:
                empty.append(name)
    print(json.dumps({"cases": cases(device), "fail_index": fail_index, "empty_plan_does_work": empty}))


if __name__ == "__main__":
    main()
