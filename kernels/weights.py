"""Weights of a decoder stack: their shapes, and random ones made where they are used.

Random weights do the arithmetic of real ones: a dense prefill's time depends on shapes and types, not on values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.device import Device, check_fits
from kernels.shapes import ModelShape

# Both Llama and OPT draw their matrices from N(0, 0.02): `initializer_range` and `init_std` in their config.json.
INIT_STD = 0.02
MODEL_DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True, eq=False)
class Affine:
    """A linear layer, weight (out, in) and bias (out,), or a norm, weight and bias (width,)."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One decoder layer. Matrices are (out, in), as `torch.nn.functional.linear` takes them.

    Attributes
    ----------
    attention_norm, mlp_norm : Affine
        Norms before attention and before the MLP, (hidden,).
    qkv : Affine
        Query, key and value projections on top of each other, (q_width + 2 kv_width, hidden).
    out : Affine
        Output projection, (hidden, q_width).
    up : Affine
        Gate on top of up, (2 ffn, hidden), where the MLP is gated; else (ffn, hidden).
    down : Affine
        (hidden, ffn).
    qk_norm : torch.Tensor or None
        RMS norm weight of every query head, then of every key head, (heads + kv_heads, head_dim): one norm for both.
    """

    attention_norm: Affine
    qkv: Affine
    out: Affine
    mlp_norm: Affine
    up: Affine
    down: Affine
    qk_norm: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class Weights:
    """A decoder stack.

    Attributes
    ----------
    shape : ModelShape
        What the tensors are shaped by; `shape.layers` is the number of layers that exist.
    embedding, head : torch.Tensor
        (vocab, hidden); one tensor where the head is tied.
    positions : torch.Tensor or None
        Learned positions, (max_positions, hidden), row 0 for the first token. Hugging Face's OPT table has two rows
        before that one; they are not here.
    layers : tuple of LayerWeights
    final_norm : Affine
    """

    shape: ModelShape
    embedding: torch.Tensor
    positions: torch.Tensor | None
    layers: tuple[LayerWeights, ...]
    final_norm: Affine
    head: torch.Tensor

    @property
    def dtype(self) -> str:
        """Element type of all weights, by its torch name."""
        return str(self.embedding.dtype).removeprefix("torch.")


class _Draw(Protocol):
    def __call__(self, *size: int) -> torch.Tensor: ...


def random_weights(shape: ModelShape, dtype: str, device: Device, seed: int = 0) -> Weights:
    """Weights of the real sizes, drawn on the device itself: matrices, tables and biases from N(0, 0.02), norms 1.

    Each tensor is filled in place, so the peak is the weights and nothing beside them. The LM head shares the
    embedding's memory whether the model ties them or not: only a few rows of the embedding are read, so a second
    table (1 GB for Llama-3-8B in bfloat16) would cost memory and change no time.

    Raises
    ------
    ValueError
        If `dtype` is no type that a model computes in.
    DoesNotFit
        If the device lacks the memory; nothing is allocated then.
    """
    if dtype not in MODEL_DTYPES:
        raise ValueError(f"no model computes in {dtype!r}; use one of {', '.join(MODEL_DTYPES)}")
    check_fits(device, shape.weight_bytes(dtype), 0, f"{shape.name} with {shape.layers} layers in {dtype}")
    generator = torch.Generator(device.torch_device).manual_seed(seed)

    def draw(*size: int) -> torch.Tensor:
        return torch.empty(size, dtype=getattr(torch, dtype), device=device.torch_device).normal_(
            std=INIT_STD, generator=generator
        )

    with device.on_stream():
        embedding = draw(shape.vocab, shape.hidden)
        weights = Weights(
            shape=shape,
            embedding=embedding,
            positions=draw(shape.max_positions, shape.hidden) if shape.positions == "learned" else None,
            layers=tuple(_layer(shape, draw) for _ in range(shape.layers)),
            final_norm=_norm(shape, draw),
            head=embedding,
        )
    device.wait()
    return weights


def _layer(shape: ModelShape, draw: _Draw) -> LayerWeights:
    gates = 2 if shape.mlp == "gated" else 1
    return LayerWeights(
        attention_norm=_norm(shape, draw),
        qkv=_linear(shape, draw, shape.q_width + 2 * shape.kv_width, shape.hidden),
        out=_linear(shape, draw, shape.hidden, shape.q_width),
        mlp_norm=_norm(shape, draw),
        up=_linear(shape, draw, gates * shape.ffn, shape.hidden),
        down=_linear(shape, draw, shape.hidden, shape.ffn),
        qk_norm=draw(shape.heads + shape.kv_heads, shape.head_dim).fill_(1) if shape.qk_norm else None,
    )


def _linear(shape: ModelShape, draw: _Draw, out: int, into: int) -> Affine:
    return Affine(draw(out, into), draw(out) if shape.biases else None)


def _norm(shape: ModelShape, draw: _Draw) -> Affine:
    return Affine(draw(shape.hidden).fill_(1), draw(shape.hidden) if shape.norm == "layer" else None)
