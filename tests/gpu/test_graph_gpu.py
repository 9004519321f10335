"""Graphs on CUDA: what a replay enqueues, what it computes, what it holds, and what cannot be recorded."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
import torch

from kernels.chunked import prepare_chunks
from kernels.decode import prepare_decode
from kernels.device import Device, open_device
from kernels.graph import capture
from kernels.pointwise import compilations
from kernels.sequences import Sequences
from kernels.transformer import prepare
from kernels.weights import Weights, random_weights
from tests.gpu.test_transformer_gpu import BLOCK_SIZE, BLOCKS, LLAMA, pool_on, prompts, skip_numbers

pytestmark = pytest.mark.gpu

ISSUES = ("prefill", "fill", "chunked", "decode")
TOKENS = (1, 2, 17, 64, 200)


@pytest.fixture(scope="module")
def cuda() -> Device:
    return open_device("cuda")


@pytest.fixture(scope="module")
def weights(cuda: Device) -> Weights:
    return random_weights(LLAMA, "bfloat16", cuda)


def one_sequence(tokens: int, cached: int = 0) -> Sequences:
    ids = torch.arange(tokens) % LLAMA.vocab
    return Sequences(ids, [tokens], [np.arange(BLOCKS)], [cached])


def issue_of(name: str, device: Device, weights: Weights, compile: bool = False) -> Callable[[], torch.Tensor | None]:
    pool = pool_on(device, LLAMA, "bfloat16")
    device.wait()
    if name == "decode":
        return prepare_decode(device, weights, pool, one_sequence(1, cached=100), compile=compile).issue
    if name == "chunked":
        return prepare_chunks(device, weights, pool, prompts(LLAMA), 48, compile=compile).issue
    prefill = prepare(device, weights, pool, prompts(LLAMA), compile=compile)
    return prefill.fill if name == "fill" else prefill.issue


def launches(device: Device) -> int:
    """Kernels that the stand-in was asked to launch so far; those of a replay go with their graph, in one call."""
    facts = device.facts()
    if not facts or not facts["name"].startswith("fakegpu"):
        pytest.skip("only the stand-in GPU counts what is launched")
    return int(ctypes.CDLL("libcudart.so.13").fakegpu_count(2))


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ISSUES)
def test_a_replay_is_the_same_kernels_in_one_call(cuda: Device, weights: Weights, name: str, compile: bool) -> None:
    issue = issue_of(name, cuda, weights, compile)
    issue()
    start = launches(cuda)
    issue()
    plain = launches(cuda) - start
    graph = capture(cuda, issue)
    assert graph.refusal is None
    recorded = launches(cuda) - start - plain
    for _ in range(3):
        graph.issue()
    cuda.wait()
    assert recorded == 2 * plain  # one run before the recording, and the recording
    assert launches(cuda) == start + plain + recorded


@pytest.mark.parametrize("name", ISSUES)
def test_a_replay_allocates_nothing_and_gives_the_same_tensors(cuda: Device, weights: Weights, name: str) -> None:
    graph = capture(cuda, issue_of(name, cuda, weights))
    first = graph.issue()
    cuda.wait()
    before = cuda.allocation_counts(), torch.cuda.memory_allocated()
    assert graph.issue() is first
    cuda.wait()
    assert (cuda.allocation_counts(), torch.cuda.memory_allocated()) == before


@pytest.mark.parametrize("name", ["prefill", "chunked", "decode"])
def test_a_replay_computes_what_the_issue_does(cuda: Device, weights: Weights, name: str) -> None:
    issue = issue_of(name, cuda, weights)
    graph = capture(cuda, issue)
    plain = issue()
    replayed = graph.issue()
    cuda.wait()
    skip_numbers(cuda)
    assert plain is not None
    assert replayed is not None
    torch.testing.assert_close(replayed, plain, rtol=0, atol=0)


def test_a_replay_reads_what_lies_there_when_it_runs_and_on_the_devices_own_stream(cuda: Device) -> None:
    """A copy within the device is what both a GPU and the stand-in carry out."""
    source, seen = (torch.zeros(1 << 20, dtype=torch.uint8, device=cuda.torch_device) for _ in range(2))
    cuda.wait()

    def issue() -> None:
        with cuda.on_stream():
            seen.copy_(source)

    graph = capture(cuda, issue)
    truth = torch.arange(1 << 20).remainder(251).to(torch.uint8)
    source.copy_(truth)
    cuda.wait()
    assert not seen.cpu().any()  # recording runs nothing
    mark = cuda.mark()
    graph.issue()
    mark.record()
    mark.wait()
    assert torch.equal(seen.cpu(), truth)


def test_what_waits_is_issued_as_it_was_with_the_reason(cuda: Device, weights: Weights) -> None:
    runs: list[None] = []

    def waits() -> None:
        runs.append(None)
        with cuda.on_stream():
            torch.zeros(1, device=cuda.torch_device)
            torch.cuda.current_stream().synchronize()

    graph = capture(cuda, waits)
    assert graph.refusal is not None
    assert graph.refusal.startswith(("AcceleratorError: CUDA error", "RuntimeError: CUDA error"))
    before = len(runs)
    graph.issue()
    assert len(runs) == before + 1
    assert capture(cuda, issue_of("prefill", cuda, weights)).refusal is None


def test_a_graph_that_is_dropped_gives_its_memory_back(cuda: Device) -> None:
    size = 64 << 20

    def issue() -> torch.Tensor:
        with cuda.on_stream():
            return torch.zeros(size, dtype=torch.uint8, device=cuda.torch_device)

    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    graph = capture(cuda, issue)
    assert torch.cuda.memory_reserved() >= before + size
    del graph
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before


def test_no_number_of_tokens_compiles_anything_once_it_is_prepared(cuda: Device, weights: Weights) -> None:
    pool = pool_on(cuda, LLAMA, "bfloat16")
    prefills = [prepare(cuda, weights, pool, one_sequence(tokens), compile=True) for tokens in TOKENS]
    chunked = prepare_chunks(cuda, weights, pool, one_sequence(129), 64, compile=True)
    assert all(each.pointwise.compiled for each in (*prefills, *chunked.chunks))
    assert [len(chunk.forward.token_ids) for chunk in chunked.chunks] == [64, 64, 1]
    before = compilations()
    for each in (*prefills, chunked):
        each.issue()
    cuda.wait()
    assert compilations() == before
    assert all(each.pointwise.compile_s > 0 for each in prefills)
    assert max(TOKENS) <= BLOCKS * BLOCK_SIZE
