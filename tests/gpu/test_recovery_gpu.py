"""Preemptions, and recorded recoveries, on CUDA: what comes back is what left, and nothing that is issued waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels import copy_methods
from kernels.device import Device, open_device
from kernels.graph import capture
from kernels.paged_kv import Pool, block_ids
from kernels.preemptions import Preemptions, growing, prepare_recomputes, prepare_swaps
from kernels.recovery import HostCopy, fronts, prepare_hybrid, prepare_resume
from kernels.sequences import Sequences
from kernels.transformer import prepare
from kernels.weights import random_weights
from tests.gpu.test_decode_gpu import host_copy, recovered, settled
from tests.gpu.test_transformer_gpu import (
    BLOCK_SIZE,
    BLOCKS,
    LENGTHS,
    LLAMA,
    SHAPES,
    assert_agrees,
    pool_on,
    prompts,
    skip_numbers,
)

pytestmark = pytest.mark.gpu
GROWING = growing(9, 14, 3)  # 9, 23 and 37 tokens, in blocks of 16
METHODS = [name for name in copy_methods.METHODS if name != "contiguous"]


@pytest.fixture(scope="module")
def cuda() -> Device:
    return open_device("cuda")


def random_bytes(size: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def swaps(cuda: Device, method: str, keep: bool) -> tuple[Preemptions, Pool, HostCopy, Sequences]:
    """Blocks of random bytes on the device and of others on the host."""
    pool, sequences = pool_on(cuda, LLAMA, "bfloat16"), prompts(LLAMA)
    host = Pool(cuda.host_memory(pool.nbytes).tensor, pool.geometry, BLOCKS, "host")
    pool.arena.copy_(random_bytes(pool.nbytes, 1))
    host.arena.copy_(random_bytes(pool.nbytes, 2))
    counts = np.cumsum([len(ids) for ids in sequences.block_ids])
    held = np.split(block_ids("scattered", int(counts[-1]), BLOCKS, seed=5), counts[:-1])
    made = prepare_swaps(cuda, pool, sequences, HostCopy(host, held, method), GROWING, keep)
    cuda.wait()
    return made, pool, HostCopy(host, held, method), sequences


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_no_swap_in_overtakes_its_swap_out(cuda: Device, method: str, keep: bool) -> None:
    """All are enqueued at once: one that read the host too early would bring its first bytes."""
    if reason := copy_methods.find(method).unavailable(cuda):
        pytest.skip(reason)
    made, pool, host, sequences = swaps(cuda, method, keep)
    before = pool.arena.cpu()
    made.issue()
    cuda.wait()
    if method in ("gather_copy", "direct_kernel"):
        skip_numbers(cuda)
    assert torch.equal(pool.arena.cpu(), before)
    arrived = Pool(before, pool.geometry, BLOCKS, "host").bytes
    for mine, theirs in zip(sequences.block_ids, host.block_ids, strict=True):
        some = pool.geometry.blocks_for(GROWING[-1])
        assert torch.equal(host.pool.bytes[theirs[:some]], arrived[mine[:some]])


@pytest.mark.parametrize("keep", [False, True])
def test_what_is_spoiled_while_it_is_away_comes_back(cuda: Device, keep: bool) -> None:
    made, pool, _, sequences = swaps(cuda, "memcpy_loop", keep)
    whole = pool.arena.cpu()
    before = Pool(whole, pool.geometry, BLOCKS, "host").bytes
    for preemption in made.each:
        assert preemption.out is not None
        preemption.out.issue()
        cuda.wait()
        pool.arena.copy_(random_bytes(pool.nbytes, 3))
        cuda.wait()
        preemption.back.issue()
        cuda.wait()
        arrived = Pool(pool.arena.cpu(), pool.geometry, BLOCKS, "host").bytes
        for ids in sequences.block_ids:
            held = ids[: pool.geometry.blocks_for(preemption.length)]
            assert torch.equal(arrived[held], before[held])
        pool.arena.copy_(whole)
        cuda.wait()


@pytest.mark.parametrize("fraction", [0, 0.5])
def test_all_that_is_swapped_in_has_landed_where_the_step_begins(cuda: Device, fraction: float) -> None:
    """Nothing is waited for but a mark in the step's place."""
    made, mark = recovered(cuda, LLAMA), cuda.mark()
    host = host_copy(cuda, made)
    host.pool.arena.copy_(random_bytes(host.pool.nbytes, 4))
    hybrid = prepare_hybrid(cuda, made.weights, made.pool, made.sequences, host, fraction)

    class Probe:
        def issue(self) -> None:
            mark.record()

    replace(hybrid, step=Probe()).issue()  # type: ignore[arg-type]
    mark.wait()
    arrived = Pool(made.pool.arena.cpu(), made.pool.geometry, BLOCKS, "host").bytes
    for ids, held, front, length in zip(
        made.sequences.block_ids, host.block_ids, hybrid.front_tokens, LENGTHS, strict=True
    ):
        rest = slice(front // BLOCK_SIZE, made.pool.geometry.blocks_for(length - 1))
        assert torch.equal(arrived[ids[rest]], host.pool.bytes[held[rest]])
    cuda.wait()


def test_a_recorded_hybrid_agrees_with_a_prefill(cuda: Device) -> None:
    """The front is a CUDA graph, the rest comes in on the other stream beside it."""
    made = recovered(cuda, LLAMA)
    hybrid = prepare_hybrid(cuda, made.weights, made.pool, made.sequences, host_copy(cuda, made), 0.5, compile=True)
    assert hybrid.compute is not None
    graph = capture(cuda, hybrid.compute)
    assert graph.refusal is None
    made.pool.arena.zero_()
    cuda.wait()
    recorded = replace(hybrid, compute=graph.issue)
    recorded.issue()
    made.assert_same(settled(cuda, recorded.issue))


def test_a_recorded_step_resumes(cuda: Device) -> None:
    made = recovered(cuda, LLAMA)
    resume = prepare_resume(cuda, made.weights, made.pool, made.sequences, host_copy(cuda, made), compile=True)
    graph = capture(cuda, resume.step.issue)
    assert graph.refusal is None
    made.pool.arena.zero_()
    cuda.wait()
    made.assert_same(settled(cuda, replace(resume, compute=graph.issue).issue))


@pytest.mark.parametrize("name", SHAPES)
def test_recorded_recomputes_fill_the_blocks(cuda: Device, name: str) -> None:
    shape = SHAPES[name]
    weights, pool = random_weights(shape, "bfloat16", cuda), pool_on(cuda, shape, "bfloat16")
    made = prepare_recomputes(cuda, weights, pool, prompts(shape), GROWING, compile=True)
    graph = capture(cuda, made.issue)
    assert graph.refusal is None
    pool.arena.zero_()
    cuda.wait()
    graph.issue()
    cuda.wait()
    expected = pool_on(cuda, shape, "bfloat16")
    prepare(cuda, weights, expected, fronts(prompts(shape), [GROWING[-1]] * len(LENGTHS))).fill()
    cuda.wait()
    skip_numbers(cuda)
    for layer in range(shape.layers):
        for ours, theirs in zip(pool.kv(layer), expected.kv(layer), strict=True):
            assert_agrees(ours, theirs.cpu().double())


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("method", METHODS)
def test_nothing_that_is_issued_waits_or_allocates(cuda: Device, method: str) -> None:
    if reason := copy_methods.find(method).unavailable(cuda):
        pytest.skip(reason)
    pool, weights = pool_on(cuda, LLAMA, "bfloat16"), random_weights(LLAMA, "bfloat16", cuda)
    issues: list[Callable[[], None]] = [swaps(cuda, method, keep)[0].issue for keep in (False, True)]
    issues.append(prepare_recomputes(cuda, weights, pool, prompts(LLAMA), GROWING, compile=True).issue)
    for issue in issues:
        issue()
        cuda.wait()
        before = cuda.allocation_counts()
        torch.cuda.set_sync_debug_mode("error")
        try:
            issue()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        cuda.wait()
        assert cuda.allocation_counts() == before
