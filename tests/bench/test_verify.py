from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.verify import NotVerified, fill_random, read_blocks, verify_copy, write_blocks
from kernels import copy_methods
from kernels.device import open_device
from tests.kernels.plans import Swap, swaps

DEVICE = open_device("cpu")


@given(swap=swaps())
@settings(max_examples=25)
def test_a_whole_copy_verifies(swap: Swap) -> None:
    issue = copy_methods.find("torch_copy").prepare(swap.plan(), DEVICE)
    verify_copy(issue, DEVICE, swap.src, swap.src_ids, swap.dst, swap.dst_ids)


@given(swap=swaps().filter(lambda swap: len(swap.src_ids)), data=st.data())
@settings(max_examples=50)
def test_one_lost_byte_is_noticed_wherever_it_is(swap: Swap, data: st.DataObject) -> None:
    """Even where the destination held the right bytes before."""
    swap.dst.bytes[torch.from_numpy(swap.dst_ids)] = swap.src.bytes[torch.from_numpy(swap.src_ids)]
    plan = swap.plan()
    lost = data.draw(st.integers(0, plan.descriptors - 1))
    plan.sizes[lost] -= np.uint64(1)
    issue = copy_methods.find("torch_copy").prepare(plan, DEVICE)
    with pytest.raises(
        NotVerified, match=r"^1 of [\d,]+ bytes did not arrive; the first is byte \d+ of [KV], layer \d+, in"
    ):
        verify_copy(issue, DEVICE, swap.src, swap.src_ids, swap.dst, swap.dst_ids)


@given(swap=swaps())
@settings(max_examples=25)
def test_blocks_read_as_written(swap: Swap) -> None:
    values = ~read_blocks(swap.src, swap.src_ids)
    write_blocks(swap.src, swap.src_ids, values)
    assert torch.equal(read_blocks(swap.src, swap.src_ids), values)


def test_random_fill_repeats_nowhere() -> None:
    arena = torch.zeros(5 * 4096 + 3, dtype=torch.uint8)
    fill_random(arena, 0, chunk_bytes=4096)
    chunks = arena[: 5 * 4096].view(5, 4096)
    assert all((chunks[a] != chunks[b]).float().mean() > 0.9 for a in range(5) for b in range(a))
    assert arena.unique().numel() == 256
    again = torch.zeros_like(arena)
    fill_random(again, 0, chunk_bytes=4096)
    assert torch.equal(arena, again)
