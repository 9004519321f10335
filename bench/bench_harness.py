"""What the suite itself costs, and whether its prefill is a fair opponent: `pytest bench/bench_harness.py`.

It times no recovery, so it is no part of `pytest bench/` and leaves no row in a result file. Each figure is printed and
held against its limit.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch

from bench.measure import Benchmark, Round, measure
from kernels import copy_methods, copy_plan, shapes
from kernels.device import Device, open_device
from kernels.paged_kv import Geometry, Pool, block_ids
from kernels.sequences import Sequences
from kernels.transformer import prepare
from kernels.weights import Affine, LayerWeights, Weights

LLAMA = shapes.find("llama-3-8b")
Show = Callable[[str], None]


@pytest.fixture
def device() -> Device:
    """The host's own clock is what these figures are about."""
    return open_device("cpu")


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Print past pytest's capture."""

    def write(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}")

    return write


def pools(blocks: int, block_size: int, layout: shapes.Layout, device: Device) -> tuple[Pool, Pool]:
    """A device pool and a host pool of touched memory."""
    geometry = Geometry(LLAMA, "bfloat16", layout, block_size)
    arenas = [torch.ones(blocks * geometry.block_bytes, dtype=torch.uint8) for _ in range(2)]
    return Pool(arenas[0], geometry, blocks, "device"), Pool(arenas[1], geometry, blocks, "host")


def bench_plan(device: Device, show: Show) -> None:
    """A plan of 327,680 descriptors (5,120 blocks, 32 layers, K and V) takes under 20 ms to build."""
    blocks = 5120
    geometry = Geometry(LLAMA, "bfloat16", "layer_split", 1)
    arena = torch.empty(blocks * geometry.block_bytes, dtype=torch.uint8)  # never read: a plan is addresses
    ends = (Pool(arena, geometry, blocks, "device"), Pool(arena, geometry, blocks, "host"))
    ids = [block_ids("scattered", blocks, blocks, seed) for seed in (0, 1)]
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        plan = copy_plan.build(ends[0], ids[0], ends[1], ids[1])
        seconds.append(time.perf_counter() - start)
    show(f"a plan of {plan.descriptors:,} descriptors: {median(seconds) * 1e3:.2f} ms (limit 20 ms)")
    assert plan.descriptors == 327_680
    assert median(seconds) < 20e-3


def bench_memcpy_loop(device: Device, show: Show) -> None:
    """The compiled loop adds under 100 ns a descriptor to memmove itself.

    Memmove alone is one call for all bytes; fragments of 64 bytes in cache leave the call's own cost to see.
    """
    count, size = 100_000, 64
    src, dst = torch.ones(count * size, dtype=torch.uint8), torch.ones(count * size, dtype=torch.uint8)
    starts = np.arange(count, dtype=np.uint64) * np.uint64(size)
    sizes = np.full(count, size, dtype=np.uint64)
    base = np.uint64(src.data_ptr()), np.uint64(dst.data_ptr())
    plan = copy_plan.CopyPlan(base[0] + starts, base[1] + starts, sizes, src, dst, "swap_out")
    issue = copy_methods.find("memcpy_loop").prepare(plan, device)
    loops, alone = [], []
    for _ in range(21):
        loops.append(seconds_of(issue))
        alone.append(seconds_of(lambda: ctypes.memmove(dst.data_ptr(), src.data_ptr(), count * size)))
    added = (median(loops) - median(alone)) / count
    show(f"memcpy_loop adds {added * 1e9:.1f} ns a descriptor to memmove (limit 100 ns)")
    assert added < 100e-9


def bench_clocks(device: Device, benchmark: Benchmark, show: Show) -> None:
    """An empty issue measures under 10 us of wall clock on the CPU."""
    measured = measure(benchmark, lambda: None, device, budget_s=0.5)
    wall = median(measured.clocks.wall_s)
    show(f"the wall clock of an empty issue: {wall * 1e6:.2f} us (limit 10 us)")
    assert wall < 10e-6


def bench_layer_against_transformers(device: Device, show: Show) -> None:
    """One Llama-3-8B layer, 256 tokens: no slower than the same layer of transformers, weights and threads shared."""
    pytest.importorskip("transformers")
    tokens, (theirs, ours) = 256, llama_layer()
    hidden = torch.randn(1, tokens, LLAMA.hidden)
    with torch.inference_mode():
        embeddings = theirs.rotary(hidden, torch.arange(tokens)[None])
        layer = Round(lambda: theirs.layer(hidden, position_embeddings=embeddings, attention_mask=None), device)
        geometry = Geometry(LLAMA.with_layers(1), "float32", "layer_split", 16)
        pool = Pool(torch.zeros(16 * geometry.block_bytes, dtype=torch.uint8), geometry, 16, "device")
        sequences = Sequences(torch.zeros(tokens, dtype=torch.int64), [tokens], [np.arange(16)])
        stack = Round(prepare(device, ours, pool, sequences).issue, device)
        layer.run()
        stack.run()
        pairs = [(seconds_of(stack.run), seconds_of(layer.run)) for _ in range(5)]
    mine, reference = (median(side) for side in zip(*pairs, strict=True))
    show(f"one layer, {tokens} tokens: {mine * 1e3:.0f} ms; transformers: {reference * 1e3:.0f} ms (limit: no slower)")
    assert mine <= reference


def seconds_of(run: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def llama_layer() -> tuple[Any, Weights]:
    """A transformers layer with its rotary embedding, and the same weights in our form, cut to a tiny vocabulary."""
    from types import SimpleNamespace

    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    sizes: dict[str, Any] = {
        "hidden_size": LLAMA.hidden,
        "intermediate_size": LLAMA.ffn,
        "num_attention_heads": LLAMA.heads,
        "num_key_value_heads": LLAMA.kv_heads,
        "num_hidden_layers": 1,
        "rope_theta": LLAMA.rope_theta,
        "attn_implementation": "sdpa",
    }
    config = LlamaConfig(**sizes)
    layer = LlamaDecoderLayer(config, 0).eval()
    attention, mlp = layer.self_attn, layer.mlp
    qkv = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]).detach()
    up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).detach()
    ones = Affine(torch.ones(LLAMA.hidden))
    ours = LayerWeights(
        ones,
        Affine(qkv),
        Affine(attention.o_proj.weight.detach()),
        ones,
        Affine(up),
        Affine(mlp.down_proj.weight.detach()),
    )
    table = torch.randn(8, LLAMA.hidden)
    one_layer = LLAMA.with_layers(1)
    weights = Weights(one_layer, table, None, (ours,), ones, table)
    return SimpleNamespace(layer=layer, rotary=LlamaRotaryEmbedding(config)), weights
