from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings

from kernels import copy_methods
from kernels.copy_methods import METHODS
from kernels.device import Device, open_device
from tests.kernels.plans import Swap, swaps

CUDA_ONLY = {
    "direct_kernel": "kernels need a CUDA device",
    "memcpy_batch": "cuMemcpyBatchAsync is a call of the CUDA driver",
    "memcpy_batch_overlap": "cuMemcpyBatchAsync is a call of the CUDA driver",
}
ON_A_CPU = [name for name in METHODS if name not in CUDA_ONLY]
PLANNED = [name for name in ON_A_CPU if name != "contiguous"]


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("cpu")


@pytest.mark.parametrize("name", PLANNED)
@given(swap=swaps())
@settings(max_examples=30)
def test_moves_the_blocks_and_nothing_else(name: str, swap: Swap) -> None:
    device = open_device("cpu")
    expected = swap.expected()
    for plan in (swap.plan(), swap.plan().merged()):
        copy_methods.find(name).prepare(plan, device)()
        assert torch.equal(swap.dst.arena, expected)


@pytest.mark.parametrize("name", ON_A_CPU)
@given(swap=swaps())
@settings(max_examples=20)
def test_preparing_moves_nothing(name: str, swap: Swap) -> None:
    plan, before = swap.plan(), swap.dst.arena.clone()
    if name != "contiguous" or plan.merged().descriptors == 1:
        copy_methods.find(name).prepare(plan, open_device("cpu"))
    assert torch.equal(swap.dst.arena, before)


@given(swap=swaps())
@settings(max_examples=50)
def test_contiguous_is_one_copy_or_refused(swap: Swap) -> None:
    plan, expected = swap.plan(), swap.expected()
    method, device = copy_methods.find("contiguous"), open_device("cpu")
    if plan.merged().descriptors == 1:
        method.prepare(plan, device)()
        assert torch.equal(swap.dst.arena, expected)
    else:
        with pytest.raises(ValueError, match="contiguous needs one stretch of memory"):
            method.prepare(plan, device)


@pytest.mark.parametrize("name", METHODS)
def test_runs_on_a_cpu_or_says_why_not(name: str, device: Device) -> None:
    assert copy_methods.find(name).unavailable(device) == CUDA_ONLY.get(name)


def test_a_method_is_one_file_and_one_line() -> None:
    folder = Path(copy_methods.__file__).parent
    assert sorted(METHODS) == sorted(path.stem for path in folder.glob("[a-z]*.py"))


def test_unknown_method_lists_the_known() -> None:
    with pytest.raises(
        ValueError, match=r"unknown copy method 'dma'; known: contiguous, direct_kernel, .*, torch_copy"
    ):
        copy_methods.find("dma")
