from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import staging
from kernels.copy_methods import gather_copy
from kernels.copy_plan import CopyPlan
from kernels.device import open_device
from tests.kernels.plans import Swap, random_bytes, swaps

HALF = 4096


@given(swap=swaps(max_blocks=40), halves=st.integers(1, 3))
@settings(max_examples=60)
def test_bytes_arrive_through_halves_smaller_than_the_plan(swap: Swap, halves: int) -> None:
    expected, plan = swap.expected(), swap.plan()
    issue = gather_copy.prepare(plan, open_device("cpu"), staging_bytes=2 * halves * HALF + 17)
    issue()
    assert torch.equal(swap.dst.arena, expected)
    assert issue.half_bytes == halves * HALF
    assert issue.staging_bytes == min(2 * issue.half_bytes, plan.nbytes)
    assert issue.launches == -(-plan.nbytes // issue.half_bytes)
    assert (issue.table_bytes, issue.word_bytes) == (0, 0)


def one_sided(direction: str, host_order: list[int], size: int = 1000) -> CopyPlan:
    """Fragments that lie apart on the device and at multiples of their size on the host, in `host_order`."""
    count = len(host_order)
    device, host = random_bytes(2 * count * size, 0), random_bytes((max(host_order) + 1) * size, 1)
    scattered = np.random.default_rng(2).permutation(count).astype(np.uint64) * np.uint64(2 * size)
    at = [device.data_ptr() + scattered, host.data_ptr() + np.array(host_order, dtype=np.uint64) * np.uint64(size)]
    ends, arenas = (at, (device, host)) if direction == "swap_out" else (at[::-1], (host, device))
    return CopyPlan(*(end.astype(np.uint64) for end in ends), np.full(count, size, np.uint64), *arenas, direction)  # type: ignore[arg-type]


@pytest.mark.parametrize("direction", ["swap_out", "swap_in"])
def test_one_copy_a_half_where_the_host_is_one_stretch(direction: str) -> None:
    """Whatever the order in which the plan lists it."""
    plan = one_sided(direction, np.random.default_rng(3).permutation(41).tolist())
    issue = gather_copy.prepare(plan, open_device("cpu"), staging_bytes=2 * HALF)
    assert issue.copies == -(-41_000 // HALF) <= plan.nbytes // HALF + 1


def test_each_stretch_of_the_host_is_a_copy_of_its_own() -> None:
    plan = one_sided("swap_out", [0, 1, 5, 6, 7, 9])
    assert gather_copy.prepare(plan, open_device("cpu"), staging_bytes=1 << 20).copies == 3
    # 0-1 | 5, 6 and 96 bytes of 7 fill the first 4 KiB | the rest of 7 | 9
    assert gather_copy.prepare(plan, open_device("cpu"), staging_bytes=2 * HALF).copies == 4


def test_halves_alternate_and_no_copy_leaves_its_half() -> None:
    plan = one_sided("swap_in", list(range(30)))
    chunks = staging.chunks(plan, buffer=1 << 20, half=HALF)
    assert len(chunks) == 8
    for number, chunk in enumerate(chunks):
        low = (1 << 20) + number % 2 * HALF
        assert int(chunk.runs.sizes.sum()) == int(chunk.fragments.sizes.sum()) <= HALF
        for staged, sizes in ((chunk.runs.dst, chunk.runs.sizes), (chunk.fragments.src, chunk.fragments.sizes)):
            assert (staged >= low).all()
            assert (staged + sizes <= low + HALF).all()


def test_a_half_is_waited_for_before_it_is_filled_again() -> None:
    log: list[str] = []

    class Log:
        link_stream = 0

        def __getattr__(self, name: str) -> object:
            return lambda *half: log.append(" ".join([name, *map(str, half)]))

    nothing = torch.empty(0)
    steps = tuple((lambda: log.append("fill"), lambda: log.append("empty")) for _ in range(3))
    gather_copy.GatherIssue(0, 0, 0, 0, 0, 0, nothing, Log(), steps)()  # type: ignore[arg-type]
    assert log == [
        *("begin", "fill", "between 0", "empty", "after_emptying 0"),
        *("fill", "between 1", "empty", "after_emptying 1"),
        *("before_filling 0", "fill", "between 0", "empty", "after_emptying 0", "end 0"),
    ]


def test_too_little_staging_is_refused() -> None:
    with pytest.raises(ValueError, match="staging_bytes: 8,191; two halves need 8,192 or more"):
        gather_copy.prepare(one_sided("swap_out", [0]), open_device("cpu"), staging_bytes=8191)
