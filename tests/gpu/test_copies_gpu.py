"""Every copy method on a CUDA device, byte for byte. Runs on a GPU and under a stand-in: copies are real in both."""

from __future__ import annotations

import os
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from bench.measure import Round
from bench.verify import NotVerified, fill_random, read_blocks, verify_copy
from kernels import copy_methods, copy_plan, cuda_driver, staging
from kernels.copy_methods import METHODS, CopyMethod, direct_kernel, gather_copy
from kernels.device import Device, DoesNotFit, check_fits, open_device
from kernels.paged_kv import Geometry, Pool, block_ids
from kernels.shapes import LAYOUTS, Layout, ModelShape

pytestmark = pytest.mark.gpu
SMALL = ModelShape("small", layers=3, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=8, vocab=8)
BLOCKS = 24
PLACEMENTS = ("contiguous", "scattered", "runs-4")
BY_KERNEL = ("direct_kernel", "gather_copy")


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("cuda")


def method(name: str, device: Device) -> CopyMethod:
    found = copy_methods.find(name)
    if reason := found.unavailable(device):
        pytest.skip(reason)
    return found


def kernels_run(device: Device) -> bool:
    """Under a stand-in only Triton's interpreter runs them."""
    facts = device.facts()
    return facts is not None and (not facts["name"].startswith("fakegpu") or os.environ.get("TRITON_INTERPRET") == "1")


def pools(device: Device, layout: Layout, block_size: int = 4) -> tuple[Pool, Pool]:
    geometry = Geometry(SMALL, "bfloat16", layout, block_size)
    size = BLOCKS * geometry.block_bytes
    made = (
        Pool(device.empty(size), geometry, BLOCKS, "device"),
        Pool(device.host_memory(size).tensor, geometry, BLOCKS, "host"),
    )
    for seed, pool in enumerate(made):
        fill_random(pool.arena, seed, chunk_bytes=1 << 12)
    return made


@pytest.mark.parametrize(
    ("name", "layout", "placement", "out"), list(product(METHODS, LAYOUTS, PLACEMENTS, [True, False]))
)
def test_the_right_bytes_arrive(device: Device, name: str, layout: Layout, placement: str, out: bool) -> None:
    on_device, on_host = pools(device, layout)
    ends = [(on_device, block_ids(placement, 12, BLOCKS, 1)), (on_host, block_ids(placement, 12, BLOCKS, 2))]
    (src, src_ids), (dst, dst_ids) = ends if out else ends[::-1]
    plan = copy_plan.build(src, src_ids, dst, dst_ids)
    assert plan.direction == ("swap_out" if out else "swap_in")
    copies = method(name, device)
    if name == "contiguous" and plan.merged().descriptors > 1:
        with pytest.raises(ValueError, match="one stretch of memory"):
            copies.prepare(plan, device)
        return
    untouched = np.setdiff1d(np.arange(BLOCKS), dst_ids)
    before = read_blocks(dst, untouched)
    issue = copies.prepare(plan, device)
    if name in BY_KERNEL and not kernels_run(device):
        with device.on_stream():
            issue()
        device.wait()
        pytest.skip("issued; kernels do nothing under a stand-in")
    verify_copy(issue, device, src, src_ids, dst, dst_ids)
    assert torch.equal(read_blocks(dst, untouched), before)


@pytest.mark.parametrize("name", METHODS)
def test_issuing_allocates_nothing_and_does_not_wait(device: Device, name: str) -> None:
    on_device, on_host = pools(device, "cross_layer")
    ids = np.arange(BLOCKS)
    issue = method(name, device).prepare(copy_plan.build(on_device, ids, on_host, ids), device)
    timed = Round(issue, device)
    with device.on_stream():
        timed.run()
        before = device.allocation_counts()
        timed.run()
        timed.read_marks()
    assert device.allocation_counts() == before
    assert timed.device_s[0] > 0


def test_a_lost_copy_is_noticed(device: Device) -> None:
    on_device, on_host = pools(device, "layer_split")
    ids = np.arange(4)
    plan = copy_plan.build(on_device, ids, on_host, ids)
    short = copy_plan.CopyPlan(
        plan.src[:-1], plan.dst[:-1], plan.sizes[:-1], plan.src_arena, plan.dst_arena, plan.direction
    )
    issue = copy_methods.find("memcpy_loop").prepare(short, device)
    with pytest.raises(NotVerified, match=r"of V, layer 2, in the sequence's block 3"):
        verify_copy(issue, device, on_device, ids, on_host, ids)


def test_a_refused_copy_raises(device: Device) -> None:
    on_device, on_host = pools(device, "layer_split")
    ids = np.arange(4)
    plan = copy_plan.build(on_device, ids, on_host, ids)
    nowhere = copy_plan.CopyPlan(
        np.full_like(plan.src, 8), plan.dst, plan.sizes, plan.src_arena, plan.dst_arena, plan.direction
    )
    issue = copy_methods.find("memcpy_loop").prepare(nowhere, device)
    with device.on_stream(), pytest.raises(cuda_driver.DriverError, match="refused copy 0 of 24"):
        issue()


@pytest.mark.parametrize("out", [True, False])
def test_staging_in_many_chunks_keeps_its_order(device: Device, out: bool) -> None:
    """Halves of 4 KiB: a half that is filled before it is empty, or emptied before it is full, shows in the bytes."""
    on_device, on_host = pools(device, "layer_split", block_size=16)
    ends = [(on_device, block_ids("scattered", BLOCKS, BLOCKS, 1)), (on_host, np.arange(BLOCKS))]
    (src, src_ids), (dst, dst_ids) = ends if out else ends[::-1]
    plan = copy_plan.build(src, src_ids, dst, dst_ids)
    if reason := gather_copy.unavailable(device):
        pytest.skip(reason)
    issue = gather_copy.prepare(plan, device, staging_bytes=8192)
    assert issue.copies == issue.launches == plan.nbytes // 4096
    if not kernels_run(device):
        pytest.skip("kernels do nothing under a stand-in")
    for _ in range(3):
        verify_copy(issue, device, src, src_ids, dst, dst_ids)


@pytest.mark.parametrize("kernel_first", [True, False])
@pytest.mark.parametrize(
    ("busy", "steps", "waits"),
    [
        ("own", ["begin"], "link"),
        ("fills", ["between"], "empties"),
        ("empties", ["after_emptying", "before_filling"], "fills"),
        ("empties", ["after_emptying", "end"], "own"),
    ],
)
def test_one_stream_waits_for_the_other(
    device: Device, kernel_first: bool, busy: str, steps: list[str], waits: str
) -> None:
    """The busy stream's copies are done by the time that the other passes the step."""
    order: Any = staging.order(device, kernel_first)
    on_device, on_host = device.empty(64 << 20), device.host_memory(64 << 20).tensor
    device.wait()
    behind, passed = torch.cuda.Event(), torch.cuda.Event()
    with torch.cuda.stream(getattr(order, f"_{busy}")):
        for _ in range(4):
            on_device.copy_(on_host, non_blocking=True)
        behind.record()
    for step in steps:
        getattr(order, step)(*[] if step == "begin" else [0])
    passed.record(getattr(order, f"_{waits}"))
    passed.synchronize()
    assert behind.query()
    device.wait()


def test_the_link_has_a_stream_of_its_own_however_many_plans(device: Device) -> None:
    """torch hands the same 32 streams out again and again."""
    handles = set()
    for _ in range(40):
        torch.cuda.Stream()
        handles.add(staging.order(device, kernel_first=True).link_stream)
    assert len(handles) == 1
    assert device.stream_handle not in handles


@pytest.mark.parametrize("programs", [1, 5, 1000])
def test_any_number_of_programs_moves_the_same_bytes(device: Device, programs: int) -> None:
    on_device, on_host = pools(device, "cross_layer", block_size=64)
    ids = block_ids("scattered", BLOCKS, BLOCKS, 3)
    if reason := direct_kernel.unavailable(device):
        pytest.skip(reason)
    issue = direct_kernel.prepare(copy_plan.build(on_host, ids, on_device, ids), device, programs)
    assert issue.programs <= programs
    if not kernels_run(device):
        pytest.skip("kernels do nothing under a stand-in")
    verify_copy(issue, device, on_host, ids, on_device, ids)


def test_host_memory_that_is_not_pinned_is_refused(device: Device) -> None:
    on_device, on_host = pools(device, "cross_layer")
    pageable = Pool(torch.zeros_like(on_host.arena), on_host.geometry, BLOCKS, "host")
    ids = np.arange(BLOCKS)
    if reason := direct_kernel.unavailable(device):
        pytest.skip(reason)
    with pytest.raises(cuda_driver.DriverError, match="cuPointerGetAttribute of host memory"):
        direct_kernel.prepare(copy_plan.build(on_device, ids, pageable, ids), device)


def test_a_refused_batch_raises(device: Device) -> None:
    on_device, on_host = pools(device, "layer_split")
    ids = np.arange(4)
    plan = copy_plan.build(on_device, ids, on_host, ids)
    nowhere = copy_plan.CopyPlan(
        np.full_like(plan.src, 8), plan.dst, plan.sizes, plan.src_arena, plan.dst_arena, plan.direction
    )
    issue = method("memcpy_batch", device).prepare(nowhere, device)
    with (
        device.on_stream(),
        pytest.raises(cuda_driver.DriverError, match=r"cuMemcpyBatchAsync of 24 copies \(swap_out"),
    ):
        issue()


def test_copies_run_on_a_stream_of_their_own(device: Device) -> None:
    assert device.stream_handle not in (0, 1, 2)  # legacy, and CUDA's names for legacy and per-thread default
    with device.on_stream():
        assert torch.cuda.current_stream().cuda_stream == device.stream_handle


def test_host_memory_is_pinned_and_of_the_size_asked_for(device: Device) -> None:
    memory = device.host_memory(3 * 4096 + 5)
    assert memory.tensor.numel() == 3 * 4096 + 5
    assert memory.tensor.is_pinned()
    assert memory.pinned_by in ("cudaHostRegister", "cudaHostAlloc")


def test_too_much_is_refused_before_it_is_allocated(device: Device) -> None:
    free = device.free_bytes()[0]
    with pytest.raises(DoesNotFit, match=f"a pool needs {2 * free:,} bytes of device memory; "):
        check_fits(device, 2 * free, 0, "a pool")


def test_facts(device: Device) -> None:
    facts = device.facts()
    assert facts is not None
    assert facts["memory_bytes"] > 0
    assert facts["name"]
    assert cuda_driver.driver_version() >= 12000
