"""What a pass needs, held against what it takes: traced on `cuda` in bfloat16, at the real widths of two layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels import decode, mixed, shapes
from kernels.activations import Attending, Pass, attending_on, pass_bytes
from kernels.chunked import prepare_chunks
from kernels.device import DoesNotFit
from kernels.mixed import prepare_mixed
from kernels.paged_kv import Geometry, Pool
from kernels.sequences import Sequences
from kernels.weights import random_weights
from tests.kernels.traced_memory import Trace, TracedDevice, traced

MODELS = ("llama-3-8b", "opt-13b", "qwen3-8b")
REPEATED = "EFFICIENT_ATTENTION+REPEATED_KV"
PASSES = {
    "whole": Pass.of(1, 2048),
    "batch": Pass.of(2, 400).beside(Pass.of(1, 300)),
    "cached": Pass.of(1, 204, 1837),
    "decode": Pass.of(32, 1, 256),
    "mixed": Pass.of(16, 1, 256).beside(Pass.of(1, 256)),
}


def peak_of(
    trace: Trace, geometry: Geometry, tokens: Pass, attention: str, compile: bool = False, chunk_tokens: int = 0
) -> int:
    """Most bytes that a pass, or one in chunks, takes beside its weights and its pool."""
    device = TracedDevice(trace, 80 << 30)
    weights = random_weights(geometry.shape, geometry.dtype, device)
    contexts = [new + cached for new, cached in zip(tokens.new, tokens.cached, strict=True)]
    ends = np.cumsum([geometry.blocks_for(context) for context in contexts])
    ids = np.split(np.arange(ends[-1]), ends[:-1])
    sequences = Sequences(torch.zeros(tokens.tokens, dtype=torch.int64), tokens.new, ids, tokens.cached)
    blocks = int(ends[-1])
    pool = Pool(device.empty(blocks * geometry.block_bytes), geometry, blocks, "device")
    before = trace.live_bytes
    trace.forget_peak()
    if chunk_tokens:
        prepare_chunks(device, weights, pool, sequences, chunk_tokens, attention, compile).issue()
    else:
        prepare_mixed(device, weights, pool, sequences, attention, compile).issue()
    return trace.peak_bytes - before


def geometry_of(model: str, layers: int = 2, dtype: str = "bfloat16") -> Geometry:
    return Geometry(shapes.find(model).with_layers(layers), dtype, "layer_split", 16)


@pytest.mark.parametrize("kind", PASSES)
@pytest.mark.parametrize("model", MODELS)
def test_no_pass_takes_more_than_was_worked_out(model: str, kind: str) -> None:
    geometry, tokens = geometry_of(model), PASSES[kind]
    with traced() as trace:
        taken = peak_of(trace, geometry, tokens, REPEATED)
    needed = pass_bytes(geometry, tokens, Attending())
    assert taken <= needed <= 1.3 * taken


@pytest.mark.parametrize("model", MODELS)
def test_a_fused_prefill_takes_nearly_as_much(model: str) -> None:
    """The largest prefill of the quick sweep, with compiled pieces and FlashAttention: what runs on a GPU."""
    geometry, tokens = geometry_of(model), Pass.of(1, 4096)
    geometry = replace(geometry, shape=replace(geometry.shape, max_positions=4096))
    with traced() as trace:
        taken = peak_of(trace, geometry, tokens, "FLASH_ATTENTION", compile=True)
    assert taken <= pass_bytes(geometry, tokens, Attending()) <= 1.3 * taken


@pytest.mark.parametrize("attention", ["FLASH_ATTENTION", REPEATED])
def test_chunks_take_as_much_as_the_last_of_them(attention: str) -> None:
    geometry = geometry_of("llama-3-8b")
    with traced() as trace:
        taken = peak_of(trace, geometry, Pass.of(1, 4096), attention, chunk_tokens=1024)
    assert taken <= pass_bytes(geometry, Pass.of(1, 1024, 3072), Attending()) <= 1.6 * taken


@pytest.mark.parametrize("kind", PASSES)
def test_what_is_gathered_is_counted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decode, mixed):
        monkeypatch.setattr(module, "no_paged", lambda *_: "not here")
    geometry, tokens = geometry_of("llama-3-8b"), PASSES[kind]
    with traced() as trace:
        taken = peak_of(trace, geometry, tokens, REPEATED)
    assert taken <= pass_bytes(geometry, tokens, Attending(paged=False)) <= 1.3 * taken


@pytest.mark.parametrize("kind", ["whole", "batch", "cached"])
def test_unfused_attention_grows_with_the_square(kind: str) -> None:
    """The trace sees the softmax of MATH as one operation; torch makes it of four and holds its input meanwhile."""
    geometry, tokens = geometry_of("llama-3-8b"), PASSES[kind]
    with traced() as trace:
        taken = peak_of(trace, geometry, tokens, "MATH")
    assert taken <= pass_bytes(geometry, tokens, Attending(fused=False)) <= 2 * taken
    assert taken > pass_bytes(geometry, tokens, Attending())


def test_the_device_says_what_runs() -> None:
    with traced() as trace:
        device = TracedDevice(trace, 80 << 30)
        assert attending_on(device, shapes.find("llama-3-8b"), "bfloat16") == Attending(fused=True, paged=True)
        assert attending_on(device, shapes.find("llama-3-8b"), "float64") == Attending(fused=False, paged=False)


def test_weights_take_their_own_bytes_and_no_more() -> None:
    shape = shapes.find("opt-13b").with_layers(2)
    with traced() as trace:
        device = TracedDevice(trace, 8 << 30)
        random_weights(shape, "bfloat16", device)
        assert shape.weight_bytes("bfloat16") <= trace.peak_bytes <= 1.02 * shape.weight_bytes("bfloat16")
        trace.forget_peak()
        with pytest.raises(DoesNotFit, match=r"needs 25,\d+,\d+,\d+ bytes of device memory; 8,\d+,\d+,\d+ are free"):
            random_weights(shapes.find("opt-13b"), "bfloat16", device)
        assert trace.peak_bytes == 0
