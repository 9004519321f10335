"""Nothing is compiled once a pass is prepared, whatever its number of tokens. `-m gpu` has the same with Inductor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch

from kernels import pointwise
from kernels.chunked import prepare_chunks
from kernels.device import open_device
from kernels.paged_kv import Geometry, Pool
from kernels.pointwise import compilations
from kernels.sequences import Sequences
from kernels.shapes import ModelShape
from kernels.transformer import prepare
from kernels.weights import random_weights

SHAPE = ModelShape("small", layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=64, vocab=50)
CPU = open_device("cpu")
BLOCKS = 40


@pytest.fixture
def eager_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Dynamo, which decides what is compiled anew, without a C++ compiler behind it."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    pointwise._compiled.cache_clear()
    yield
    pointwise._compiled.cache_clear()


def one_sequence(tokens: int) -> Sequences:
    return Sequences(torch.arange(tokens) % SHAPE.vocab, [tokens], [np.arange(BLOCKS)])


@pytest.mark.usefixtures("eager_backend")
def test_no_number_of_tokens_compiles_anything_once_it_is_prepared() -> None:
    weights = random_weights(SHAPE, "float32", CPU)
    geometry = Geometry(SHAPE, "float32", "layer_split", 16)
    pool = Pool(torch.zeros(BLOCKS * geometry.block_bytes, dtype=torch.uint8), geometry, BLOCKS, "device")

    start = compilations()
    prefills = [prepare(CPU, weights, pool, one_sequence(tokens), compile=True) for tokens in (200, 1, 2, 17, 512)]
    chunked = prepare_chunks(CPU, weights, pool, one_sequence(129), 64, compile=True)
    assert [len(chunk.forward.token_ids) for chunk in chunked.chunks] == [64, 64, 1]
    assert all(each.pointwise.compiled for each in (*prefills, *chunked.chunks))
    assert all(each.pointwise.compile_s > 0 for each in prefills)
    prepared = compilations()
    assert prepared - start == 2 * 3  # norm, rotation and gate: for any number of tokens, and for one

    for each in (*prefills, chunked):
        each.issue()
    assert compilations() == prepared
