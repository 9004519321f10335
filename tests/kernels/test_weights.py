"""Random weights have the real sizes and no more; a sequence's tokens find their slots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels.device import DoesNotFit, open_device
from kernels.sequences import Run, Sequences, runs, slots
from kernels.shapes import SHAPES
from kernels.weights import Weights, random_weights
from tests.kernels.hf_weights import SMALL

CPU = open_device("cpu")


def test_random_weights_have_the_sizes_the_shape_counts() -> None:
    for model in SHAPES.values():
        small = replace(
            model, layers=2, hidden=64, heads=4, kv_heads=4 if model.biases else 2, head_dim=16, ffn=96, vocab=50
        )
        weights = random_weights(small, "float32", CPU)
        assert len(weights.layers) == 2
        assert matrix_bytes(weights) == small.weight_bytes("float32")
        assert weights.head is weights.embedding
        assert (weights.final_norm.weight == 1).all()
        assert abs(float(weights.embedding.std()) - 0.02) < 0.002


def matrix_bytes(weights: Weights) -> int:
    matrices = [weights.head] + [
        m.weight for layer in weights.layers for m in (layer.qkv, layer.out, layer.up, layer.down)
    ]
    return sum(matrix.numel() * matrix.element_size() for matrix in matrices)


def test_random_weights_follow_the_seed() -> None:
    first, again, other = (random_weights(SMALL["opt"], "bfloat16", CPU, seed) for seed in (1, 1, 2))
    assert torch.equal(first.layers[2].down.weight, again.layers[2].down.weight)
    assert not torch.equal(first.layers[2].down.weight, other.layers[2].down.weight)


def test_random_weights_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(CPU), "free_bytes", lambda _: (1000, 1000))
    with pytest.raises(DoesNotFit, match="llama with 3 layers in float32 needs"):
        random_weights(SMALL["llama"], "float32", CPU)


def test_a_type_no_model_computes_in_is_refused() -> None:
    with pytest.raises(ValueError, match="computes in 'float8_e4m3fn'; use one of float64, float32"):
        random_weights(SMALL["llama"], "float8_e4m3fn", CPU)


def test_slots_follow_the_block_ids() -> None:
    sequences = Sequences(torch.zeros(8, dtype=torch.int64), [5, 3], [np.array([7, 2]), np.array([0])])
    at = slots(sequences, 4)
    assert at.positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert at.blocks.tolist() == [7, 7, 7, 7, 2, 0, 0, 0]
    assert at.offsets.tolist() == [0, 1, 2, 3, 0, 0, 1, 2]


def test_runs_join_neighbours_of_one_length() -> None:
    assert runs([4, 4, 2, 4]) == (Run(0, 2, 4), Run(8, 1, 2), Run(10, 1, 4))
