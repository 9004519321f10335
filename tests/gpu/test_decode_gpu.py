"""Decode, chunks and recoveries on CUDA against the same in float64 on the CPU (which tests/kernels proves)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from kernels import copy_methods, copy_plan
from kernels.attention import FUSED, usable_attention
from kernels.chunked import prepare_chunks
from kernels.decode import PAGED, prepare_decode, usable_decode_attention
from kernels.device import Device, open_device
from kernels.forward import prepare_forward
from kernels.kv_writer import KvWriter
from kernels.paged_kv import Geometry, Pool, block_ids
from kernels.recovery import HostCopy, prepare_hybrid, prepare_resume
from kernels.sequences import Sequences
from kernels.shapes import ModelShape
from kernels.transformer import prepare
from kernels.triton_probe import no_kernels
from kernels.weights import Weights, random_weights
from tests.gpu.test_transformer_gpu import (
    BLOCK_SIZE,
    BLOCKS,
    LENGTHS,
    LLAMA,
    SHAPES,
    assert_agrees,
    moved,
    pool_on,
    prompts,
    skip_numbers,
)

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cuda() -> Device:
    return open_device("cuda")


@pytest.fixture(params=list(SHAPES))
def shape(request: pytest.FixtureRequest) -> ModelShape:
    return SHAPES[request.param]


def last(sequences: Sequences) -> Sequences:
    """The last token of each sequence, the others cached."""
    ends = torch.from_numpy(np.cumsum(sequences.lengths) - 1)
    cached = [length - 1 for length in sequences.lengths]
    return Sequences(sequences.token_ids[ends], [1] * len(ends), sequences.block_ids, cached)


@dataclass
class Recovered:
    """A model on the GPU, and what one prefill gives for it in float64 and in its own type."""

    weights: Weights
    truth: torch.Tensor
    pool: Pool
    sequences: Sequences
    truth_pool: Pool

    def assert_same(self, logits: torch.Tensor) -> None:
        assert_agrees(logits, self.truth)
        for layer in range(self.weights.shape.layers):
            for ours, theirs in zip(self.pool.kv(layer), self.truth_pool.kv(layer), strict=True):
                assert_agrees(ours, theirs)


def recovered(cuda: Device, shape: ModelShape) -> Recovered:
    """The pool on the GPU is empty."""
    cpu = open_device("cpu")
    rounded = moved(random_weights(shape, "float32", cpu), torch.bfloat16, cpu.torch_device)
    exact, exact_pool = moved(rounded, torch.float64, cpu.torch_device), pool_on(cpu, shape, "float64")
    truth = prepare(cpu, exact, exact_pool, prompts(shape)).issue()
    pool = pool_on(cuda, shape, "bfloat16")
    cuda.wait()
    weights = moved(rounded, torch.bfloat16, cuda.torch_device)
    return Recovered(weights, truth, pool, prompts(shape), exact_pool)


def host_copy(cuda: Device, made: Recovered, method: str = "memcpy_loop") -> HostCopy:
    """K and V of a whole prefill, swapped out; the device's pool is empty again."""
    prepare(cuda, made.weights, made.pool, made.sequences).fill()
    host = Pool(cuda.host_memory(made.pool.nbytes).tensor, made.pool.geometry, BLOCKS, "host")
    ids = np.concatenate(made.sequences.block_ids)
    held = block_ids("scattered", len(ids), BLOCKS, seed=5)
    plan = copy_plan.build(made.pool, ids, host, held)
    cuda.enqueue(copy_methods.find("memcpy_loop").prepare(plan, cuda))
    cuda.wait()
    made.pool.arena.zero_()
    cuda.wait()
    counts = np.cumsum([len(ids) for ids in made.sequences.block_ids])[:-1]
    return HostCopy(host, np.split(held, counts), method)


def settled(cuda: Device, issue: Callable[[], torch.Tensor | None]) -> torch.Tensor:
    logits = issue()
    cuda.wait()
    assert logits is not None
    skip_numbers(cuda)
    return logits


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("attention", [None, "MATH", *FUSED["cuda"]])
def test_a_step_behind_a_prefill_agrees(cuda: Device, shape: ModelShape, attention: str | None, compile: bool) -> None:
    made = recovered(cuda, shape)
    if attention and attention not in ("MATH", *usable_attention(cuda, shape, "bfloat16", 1, 99)):
        pytest.skip(f"{attention} does not run here")
    prepare(cuda, made.weights, made.pool, made.sequences).fill()
    step = prepare_decode(cuda, made.weights, made.pool, last(made.sequences), attention, compile)
    made.assert_same(settled(cuda, step.issue))


@pytest.mark.parametrize("chunk_tokens", [16, 40, 100])
@pytest.mark.parametrize("attention", ["MATH", *FUSED["cuda"], *(f"{fused}+REPEATED_KV" for fused in FUSED["cuda"])])
def test_chunks_agree_on_every_attention(cuda: Device, attention: str, chunk_tokens: int) -> None:
    usable = usable_attention(cuda, LLAMA, "bfloat16", chunk_tokens, 99)
    if attention not in ("MATH", *usable):
        pytest.skip(f"{attention} does not run here; {', '.join(usable)} do")
    made = recovered(cuda, LLAMA)
    made.assert_same(
        settled(cuda, prepare_chunks(cuda, made.weights, made.pool, made.sequences, chunk_tokens, attention).issue)
    )


@pytest.mark.parametrize("method", copy_methods.METHODS)
def test_resume_agrees_with_a_prefill(cuda: Device, method: str) -> None:
    if method == "contiguous":
        pytest.skip("these blocks are scattered")
    if reason := copy_methods.find(method).unavailable(cuda):
        pytest.skip(reason)
    made = recovered(cuda, LLAMA)
    host = host_copy(cuda, made, method)
    made.assert_same(
        settled(cuda, prepare_resume(cuda, made.weights, made.pool, made.sequences, host, compile=True).issue)
    )


@pytest.mark.parametrize("fraction", [0, 0.5, 1])
def test_a_hybrid_agrees_with_a_prefill(cuda: Device, shape: ModelShape, fraction: float) -> None:
    made = recovered(cuda, shape)
    hybrid = prepare_hybrid(cuda, made.weights, made.pool, made.sequences, host_copy(cuda, made), fraction)
    for _ in range(3):
        hybrid.issue()
    made.assert_same(settled(cuda, hybrid.issue))


@pytest.mark.parametrize("fraction", [0, 0.5])
def test_the_rest_arrives_byte_for_byte(cuda: Device, fraction: float) -> None:
    """Bytes only: also where kernels compute nothing."""
    made = recovered(cuda, LLAMA)
    host = host_copy(cuda, made)
    host.pool.arena.random_()
    prepared = prepare_hybrid(cuda, made.weights, made.pool, made.sequences, host, fraction, resume=False)
    prepared.issue()
    cuda.wait()
    arrived = Pool(made.pool.arena.cpu(), made.pool.geometry, BLOCKS, "host").bytes
    for ids, held, front in zip(made.sequences.block_ids, host.block_ids, prepared.front_tokens, strict=True):
        first = front // BLOCK_SIZE
        assert torch.equal(arrived[ids[first:]], host.pool.bytes[held[first:]])


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_nothing_that_is_issued_waits_or_allocates(cuda: Device, shape: ModelShape) -> None:
    made = recovered(cuda, shape)
    host = host_copy(cuda, made)
    issues = [
        prepare_decode(cuda, made.weights, made.pool, last(made.sequences), compile=True).issue,
        prepare_chunks(cuda, made.weights, made.pool, made.sequences, 40, compile=True).issue,
        prepare_hybrid(cuda, made.weights, made.pool, made.sequences, host, 0.5, compile=True).issue,
        prepare_resume(cuda, made.weights, made.pool, made.sequences, host, compile=True).issue,
    ]
    for issue in issues:
        issue()
        cuda.wait()
        before = cuda.allocation_counts()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.compiler.set_stance("fail_on_recompile"):
                issue()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        cuda.wait()
        assert cuda.allocation_counts() == before


def test_the_kernels_are_used_where_they_load(cuda: Device) -> None:
    if reason := no_kernels(cuda):
        pytest.skip(reason)
    weights = random_weights(LLAMA, "bfloat16", cuda)
    step = prepare_decode(cuda, weights, pool_on(cuda, LLAMA, "bfloat16"), last(prompts(LLAMA)))
    assert (step.attention, step.kv_writer.name, step.kv_writer.refusal) == (PAGED, "triton", None)
    assert usable_decode_attention(cuda, random_weights(LLAMA, "float64", cuda), max(LENGTHS))[0] != PAGED


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float8_e4m3fn"])
def test_both_writers_write_the_same_bytes(cuda: Device, dtype: str) -> None:
    weights = random_weights(LLAMA, "bfloat16", cuda)
    pool = pool_on(cuda, LLAMA, "bfloat16")
    forward = prepare_forward(cuda, weights, pool, prompts(LLAMA))
    caches = Pool(pool.arena, Geometry(LLAMA, dtype, "layer_split", 16), 8, "device").kv(0)
    size = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    bits = torch.randint(0, 256, (sum(LENGTHS), 8, 64, size), dtype=torch.uint8)
    qkv = bits.to(cuda.torch_device).view(getattr(torch, dtype)).squeeze(-1)
    slot = torch.arange(128, device=cuda.torch_device) // 16, torch.arange(128, device=cuda.torch_device) % 16
    written = []
    for writer in (KvWriter(), forward.kv_writer):
        pool.arena.zero_()
        integer = {1: torch.int8, 2: torch.int16, 4: torch.int32}[size]
        k, v = (cache.view(integer) for cache in caches)
        new = qkv[:128, 4:6].view(integer), qkv[:128, 6:].view(integer)
        writer.write((k, v), slot, new)
        written.append(pool.arena.cpu())
    skip_numbers(cuda)
    assert written[0].any()
    assert torch.equal(*written)
