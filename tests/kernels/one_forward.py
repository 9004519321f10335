"""What one uninterrupted forward of transformers gives for a prompt, computed once a session for the small models."""

from __future__ import annotations

from functools import cache

import torch

from kernels.paged_kv import Pool
from kernels.sequences import Sequences
from kernels.shapes import ModelShape
from kernels.weights import Weights
from tests.kernels.hf_weights import SMALL, hf_model, our_weights
from tests.kernels.test_transformer import Truth, assert_close, stored, truth


@cache
def _model(name: str, dtype: torch.dtype) -> tuple[object, Weights]:
    model = hf_model(SMALL[name], dtype)
    return model, our_weights(SMALL[name], model)


@cache
def _truth(name: str, dtype: torch.dtype, ids: tuple[int, ...]) -> Truth:
    return truth(_model(name, dtype)[0], torch.tensor(ids))  # type: ignore[arg-type]


def weights_of(shape: ModelShape, dtype: torch.dtype = torch.float64) -> Weights:
    """The weights that the expected numbers are made with."""
    return _model(shape.name, dtype)[1]


def expected_logits(shape: ModelShape, ids: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Logits of a prompt's last token, (vocab,)."""
    return _truth(shape.name, dtype, tuple(ids.tolist())).logits


def texts(sequences: Sequences) -> list[torch.Tensor]:
    """The tokens of each sequence."""
    return list(sequences.token_ids.split(list(sequences.lengths)))


def assert_one_forward(logits: torch.Tensor | None, pool: Pool, sequences: Sequences) -> None:
    """The logits (where there are any), and K and V of every token in the pool, are those of one forward."""
    shape, dtype = pool.geometry.shape, getattr(torch, pool.geometry.dtype)
    for row, (ids, blocks) in enumerate(zip(texts(sequences), sequences.block_ids, strict=True)):
        if logits is not None:
            assert_close(logits[row], expected_logits(shape, ids, dtype))
        for layer, pair in enumerate(_truth(shape.name, dtype, tuple(ids.tolist())).kv):
            for ours, theirs in zip(stored(pool, layer, blocks, len(ids)), pair, strict=True):
                assert_close(ours, theirs)
