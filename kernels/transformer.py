"""Prefill of a decoder stack that writes K and V into a pool's blocks: the recompute side of the comparison.

Linear layers run on all tokens packed together, attention per sequence, the LM head on last tokens only, as a serving
engine's prefill does. What one model has and another has not follows from its `ModelShape`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import embedding, linear, relu_

from kernels.attention import REPEATED_KV, attend, pinned, usable_attention
from kernels.device import Device
from kernels.paged_kv import Pool
from kernels.pointwise import Pointwise, compiled_pointwise, norm, rotary_tables
from kernels.sequences import Run, Sequences, check_sequences, runs, slots
from kernels.weights import Affine, LayerWeights, Weights

# What the clocks see between the start and the end of `Prefill.issue`, in order. Sampling a token is not in it.
TIMED_PART = (
    "embedding",
    "norms",
    "qkv",
    "positions",
    "kv_write",
    "attention",
    "output_projection",
    "mlp",
    "final_norm",
    "lm_head_last_token",
)


@dataclass(frozen=True, eq=False)
class Prefill:
    """A prefill made ready by `prepare`: everything that does not change between rounds is already on the device.

    Attributes
    ----------
    attention : str
        The attention backend that runs, and no other.
    pointwise : Pointwise
        Whether the pieces between matrix products are compiled, and if not, why.
    token_ids : torch.Tensor
        int64, (tokens,).
    positions : torch.Tensor
        int64, (tokens,): each token's place in its sequence.
    rotary : tuple of torch.Tensor
        Cosines and sines of these places; empty tensors where positions are learned.
    slot : tuple of torch.Tensor
        Block and offset in the block of each token, int64, (tokens,).
    last : torch.Tensor
        int64, (batch,): the packed index of each sequence's last token.
    kv : tuple
        For each layer the views of the pool that K and V are written to.
    """

    device: Device
    weights: Weights
    attention: str
    pointwise: Pointwise
    runs: tuple[Run, ...]
    token_ids: torch.Tensor
    positions: torch.Tensor
    rotary: tuple[torch.Tensor, torch.Tensor]
    slot: tuple[torch.Tensor, torch.Tensor]
    last: torch.Tensor
    kv: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    def issue(self) -> torch.Tensor:
        """Enqueue the prefill on the device's stream.

        Returns
        -------
        torch.Tensor
            Logits of each sequence's last token, (batch, vocab); there once the device is done.
        """
        with self._running():
            x = self._embed()
            delta: torch.Tensor | None = None  # what the residual stream still lacks; the next norm adds it
            for layer, kv in zip(self.weights.layers, self.kv, strict=True):
                delta = self._attention(layer, kv, self._norm(x, delta, layer.attention_norm))
                delta = self._mlp(layer, self._norm(x, delta, layer.mlp_norm))
            return self._logits(x, delta)

    def outside_layers(self) -> torch.Tensor:
        """Enqueue what a prefill does once, however many layers it has: embedding, final norm and LM head.

        Where N of M layers are timed, only the rest of the time may be scaled by M / N. Returns as `issue` does; its
        logits mean nothing.
        """
        with self._running():
            return self._logits(self._embed(), None)

    @contextmanager
    def _running(self) -> Iterator[None]:
        with self.device.on_stream(), torch.inference_mode(), pinned(self.attention):
            yield

    def _embed(self) -> torch.Tensor:
        x = embedding(self.token_ids, self.weights.embedding)
        if self.weights.positions is not None:
            x += embedding(self.positions, self.weights.positions)
        return x

    def _norm(self, x: torch.Tensor, delta: torch.Tensor | None, by: Affine) -> torch.Tensor:
        eps = self.weights.shape.norm_eps
        if delta is None:
            return norm(x, by.weight, by.bias, eps)
        return self.pointwise.add_norm(x, delta, by.weight, by.bias, eps)

    def _attention(self, layer: LayerWeights, kv: tuple[torch.Tensor, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        shape = self.weights.shape
        qk_heads = shape.heads + shape.kv_heads
        qkv = linear(x, layer.qkv.weight, layer.qkv.bias).view(len(x), -1, shape.head_dim)
        qk, v = qkv[:, :qk_heads], qkv[:, qk_heads:]
        if shape.positions == "rotary":
            qk = self.pointwise.rotate(qk, *self.rotary, layer.qk_norm, shape.norm_eps)
        q, k = qk[:, : shape.heads], qk[:, shape.heads :]
        for cache, new in zip(kv, (k, v), strict=True):
            cache.index_put_(self.slot, new)
        seen = attend(q, k, v, self.runs, repeat_kv=self.attention.endswith(REPEATED_KV))
        return linear(seen, layer.out.weight, layer.out.bias)

    def _mlp(self, layer: LayerWeights, x: torch.Tensor) -> torch.Tensor:
        up = linear(x, layer.up.weight, layer.up.bias)
        inner = self.pointwise.gate(up) if self.weights.shape.mlp == "gated" else relu_(up)
        return linear(inner, layer.down.weight, layer.down.bias)

    def _logits(self, x: torch.Tensor, delta: torch.Tensor | None) -> torch.Tensor:
        x = x[self.last] if delta is None else x[self.last] + delta[self.last]
        return linear(self._norm(x, None, self.weights.final_norm), self.weights.head)


def prepare(
    device: Device,
    weights: Weights,
    pool: Pool,
    sequences: Sequences,
    attention: str | None = None,
    compile: bool = False,
) -> Prefill:
    """Everything of a prefill that is not timed: checks, slots, positions, rotary tables, compilation.

    Parameters
    ----------
    pool : Pool
        Device memory, of as many layers and of the type that `weights` have.
    attention : str, optional
        One of `usable_attention`; by default the first of them.
    compile : bool
        Fuse the pieces between matrix products with `torch.compile`. Where that fails they stay eager and
        `Prefill.pointwise.refusal` says why.

    Raises
    ------
    ValueError
        If pool, weights and sequences do not fit together, or `attention` is unknown.
    """
    shape, dtype, tokens = weights.shape, weights.dtype, sequences.token_ids.numel()
    check_pool(device, weights, pool)
    check_sequences(sequences, shape, pool)
    name = attention or usable_attention(device, shape, dtype, max(sequences.lengths))[0]
    with pinned(name), device.on_stream(), torch.inference_mode():
        at = slots(sequences, pool.geometry.block_size)
        positions = torch.from_numpy(at.positions)
        width = shape.head_dim if shape.positions == "rotary" else 0
        cos, sin = rotary_tables(positions, width, shape.rope_theta, weights.embedding.dtype)
        prefill = Prefill(
            device=device,
            weights=weights,
            attention=name,
            pointwise=compiled_pointwise(shape, dtype, device, tokens) if compile else Pointwise(),
            runs=runs(sequences.lengths),
            token_ids=sequences.token_ids.to(device.torch_device),
            positions=positions.to(device.torch_device),
            rotary=(cos.to(device.torch_device), sin.to(device.torch_device)),
            slot=(
                torch.from_numpy(at.blocks).to(device.torch_device),
                torch.from_numpy(at.offsets).to(device.torch_device),
            ),
            last=torch.from_numpy(np.cumsum(sequences.lengths) - 1).to(device.torch_device),
            kv=tuple(pool.kv(layer) for layer in range(shape.layers)),
        )
    device.wait()
    return prefill


def check_pool(device: Device, weights: Weights, pool: Pool) -> None:
    """Refuse a pool that the prefill of `weights` cannot write to.

    Raises
    ------
    ValueError
        Naming what differs: memory, device, element type, layers, or the size of a token's K.
    """
    shape, held = weights.shape, pool.geometry.shape
    sides: list[tuple[str, object, object]] = [
        ("memory", pool.memory, "device"),
        ("device", str(pool.arena.device), str(device.torch_device)),
        ("dtype", pool.geometry.dtype, weights.dtype),
        ("layers", held.layers, len(weights.layers)),
        ("kv_heads", held.kv_heads, shape.kv_heads),
        ("head_dim", held.head_dim, shape.head_dim),
        ("weights' device", str(weights.embedding.device), str(device.torch_device)),
        ("layers of the weights", len(weights.layers), shape.layers),
    ]
    for what, has, expected in sides:
        if has != expected:
            raise ValueError(f"cannot prefill {shape.name} into this pool: {what} is {has}; {expected} is expected")
