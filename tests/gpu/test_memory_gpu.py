"""What torch's own allocator says of a pass, against what was worked out; compiled pieces and recordings included."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.activations import Pass, attending_on, pass_bytes
from kernels.attention import usable_attention
from kernels.device import Device, open_device
from kernels.graph import capture
from kernels.mixed import prepare_mixed
from kernels.paged_kv import Geometry, Pool
from kernels.sequences import Sequences
from kernels.shapes import ModelShape
from kernels.step import Step
from kernels.weights import random_weights
from tests.gpu.test_transformer_gpu import LLAMA, OPT

pytestmark = pytest.mark.gpu

PASSES = {
    "whole": (LLAMA, Pass.of(4, 4096)),
    "plain": (OPT, Pass.of(128, 128)),
    "cached": (LLAMA, Pass.of(4, 1024, 3072)),
    "mixed": (LLAMA, Pass.of(64, 1, 255).beside(Pass.of(2, 8192))),
}
UNSPLIT = 8 << 20  # eight tensors at most, each in a block of which 1 MiB may be left over
SEGMENTS = 2 * (20 << 20)  # what a recording takes from the device at a time, for tensors of less than 10 MiB


@pytest.fixture(scope="module")
def cuda() -> Device:
    return open_device("cuda")


def prepared(device: Device, geometry: Geometry, tokens: Pass, attention: str) -> Step:
    weights = random_weights(geometry.shape, geometry.dtype, device)
    counts = [geometry.blocks_for(new + cached) for new, cached in zip(tokens.new, tokens.cached, strict=True)]
    ids = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    pool = Pool(device.empty(sum(counts) * geometry.block_bytes).zero_(), geometry, sum(counts), "device")
    sequences = Sequences(torch.zeros(tokens.tokens, dtype=torch.int64), tokens.new, ids, tokens.cached)
    return prepare_mixed(device, weights, pool, sequences, attention, compile=True)


@pytest.mark.parametrize(("shape", "tokens"), PASSES.values(), ids=PASSES)
def test_the_allocator_hands_out_no_more_than_was_worked_out(cuda: Device, shape: ModelShape, tokens: Pass) -> None:
    geometry = Geometry(shape, "bfloat16", "layer_split", 16)
    needed = pass_bytes(geometry, tokens, attending_on(cuda, shape, "bfloat16"))
    for attention in usable_attention(cuda, shape, "bfloat16", max(tokens.new), max(tokens.cached)):
        step = prepared(cuda, geometry, tokens, attention)
        step.issue()  # libraries take their workspaces, and keep them
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        step.issue()
        assert torch.cuda.max_memory_allocated() - before <= needed + UNSPLIT
        graph = capture(cuda, step.issue)
        torch.cuda.empty_cache()
        assert graph.refusal is None
        assert torch.cuda.memory_reserved() - reserved <= 2 * needed + SEGMENTS
        del graph, step
