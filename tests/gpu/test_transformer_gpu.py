"""Prefill on CUDA against the same prefill in float64 on the CPU (which tests/kernels proves against transformers)."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels.attention import FUSED, REPEATED_KV, usable_attention
from kernels.device import Device, open_device
from kernels.paged_kv import Geometry, Pool, block_ids
from kernels.sequences import Sequences
from kernels.shapes import ModelShape
from kernels.transformer import Prefill, prepare
from kernels.weights import Weights, random_weights

pytestmark = pytest.mark.gpu

BLOCK_SIZE = 16
BLOCKS = 32
LENGTHS = (100, 37, 37)
LLAMA = ModelShape("llama", layers=2, hidden=256, heads=4, kv_heads=2, head_dim=64, ffn=384, vocab=512)
OPT = replace(
    LLAMA, name="opt", kv_heads=4, mlp="plain", norm="layer", positions="learned", biases=True, max_positions=128
)
QWEN = replace(LLAMA, name="qwen", qk_norm=True, norm_eps=1e-6)
SHAPES = {shape.name: shape for shape in (LLAMA, OPT, QWEN)}
# bfloat16 keeps 8 bits: one rounding is 2 ** -9, and a two-layer prefill has some twenty in a row.
RELATIVE_ERROR = 0.03


@pytest.fixture(scope="module")
def cuda() -> Device:
    return open_device("cuda")


@pytest.fixture(params=list(SHAPES))
def shape(request: pytest.FixtureRequest) -> ModelShape:
    return SHAPES[request.param]


def moved(part: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """The same weights in another type, elsewhere."""
    if isinstance(part, torch.Tensor):
        return part.to(device, dtype)
    if isinstance(part, tuple):
        return tuple(moved(item, dtype, device) for item in part)
    if is_dataclass(part) and not isinstance(part, ModelShape | type):
        return replace(part, **{f.name: moved(getattr(part, f.name), dtype, device) for f in fields(part)})
    return part


def pool_on(device: Device, shape: ModelShape, dtype: str) -> Pool:
    geometry = Geometry(shape, dtype, "cross_layer", BLOCK_SIZE)
    return Pool(device.empty(geometry.block_bytes * BLOCKS).zero_(), geometry, BLOCKS, "device")


def prompts(shape: ModelShape) -> Sequences:
    ids = torch.randint(0, shape.vocab, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    counts = [-(-length // BLOCK_SIZE) for length in LENGTHS]
    held = block_ids("scattered", sum(counts), BLOCKS, seed=2)
    return Sequences(ids, LENGTHS, np.split(held, np.cumsum(counts)[:-1]))


def prefill_on(
    device: Device, weights: Weights, compile: bool = False, attention: str | None = None
) -> tuple[Prefill, Pool]:
    pool = pool_on(device, weights.shape, weights.dtype)
    device.wait()  # the pool is zeroed on torch's own stream
    return prepare(device, weights, pool, prompts(weights.shape), attention, compile), pool


def assert_agrees(ours: torch.Tensor, truth: torch.Tensor) -> None:
    error = (ours.cpu().double() - truth).norm() / truth.norm()
    assert float(error) < RELATIVE_ERROR


def assert_same_prefill(cuda: Device, shape: ModelShape, compile: bool, attention: str | None) -> None:
    cpu = open_device("cpu")
    rounded = moved(random_weights(shape, "float32", cpu), torch.bfloat16, cpu.torch_device)
    exact, exact_pool = prefill_on(cpu, moved(rounded, torch.float64, cpu.torch_device))
    prefill, pool = prefill_on(cuda, moved(rounded, torch.bfloat16, cuda.torch_device), compile, attention)
    logits, truth = prefill.issue(), exact.issue()
    cuda.wait()
    if compile:
        assert prefill.pointwise.compiled, prefill.pointwise.refusal
    skip_numbers(cuda)
    assert_agrees(logits, truth)
    for layer in range(shape.layers):
        for ours, theirs in zip(pool.kv(layer), exact_pool.kv(layer), strict=True):
            assert_agrees(ours, theirs)


def skip_numbers(cuda: Device) -> None:
    facts = cuda.facts()
    if facts and facts["name"].startswith("fakegpu"):
        pytest.skip("ran, but the stand-in GPU computes nothing to compare")


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
def test_bfloat16_prefill_agrees_with_float64(cuda: Device, shape: ModelShape, compile: bool) -> None:
    assert_same_prefill(cuda, shape, compile, None)


@pytest.mark.parametrize("name", ["MATH", *FUSED["cuda"], *(fused + REPEATED_KV for fused in FUSED["cuda"])])
def test_every_usable_attention_agrees(cuda: Device, name: str) -> None:
    usable = usable_attention(cuda, LLAMA, "bfloat16", max(LENGTHS))
    if name not in usable and name != "MATH":
        pytest.skip(f"{name} does not run here; {', '.join(usable)} do")
    assert_same_prefill(cuda, LLAMA, False, name)


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
def test_a_second_issue_allocates_nothing_and_compiles_nothing(cuda: Device, shape: ModelShape, compile: bool) -> None:
    prefill, _ = prefill_on(cuda, random_weights(shape, "bfloat16", cuda), compile)
    prefill.issue()
    prefill.outside_layers()
    cuda.wait()
    before = cuda.allocation_counts()
    with torch.compiler.set_stance("fail_on_recompile"):
        prefill.issue()
        prefill.outside_layers()
    cuda.wait()
    assert cuda.allocation_counts() == before


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_issue_does_not_wait_for_the_device(cuda: Device, shape: ModelShape) -> None:
    prefill, _ = prefill_on(cuda, random_weights(shape, "bfloat16", cuda))
    prefill.issue()
    cuda.wait()
    torch.cuda.set_sync_debug_mode("error")
    try:
        prefill.issue()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_random_weights_take_no_memory_beside_themselves(cuda: Device) -> None:
    big = replace(LLAMA, hidden=1024, ffn=4096, vocab=8192)
    torch.cuda.reset_peak_memory_stats(cuda.torch_device)
    before = torch.cuda.memory_allocated(cuda.torch_device)
    weights = random_weights(big, "bfloat16", cuda)
    peak = torch.cuda.max_memory_allocated(cuda.torch_device) - before
    assert weights.head.data_ptr() == weights.embedding.data_ptr()
    assert peak < 1.01 * big.weight_bytes("bfloat16")
