"""One pass of a decoder stack over packed tokens, whatever their attention reads.

A prefill, a chunk of one and a decode step differ in what a token attends to and in nothing else: norms, projections,
positions, the write of K and V into the pool's blocks, the MLP and the LM head are here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import embedding, linear, relu_

from kernels.device import Device
from kernels.kv_writer import KV, KvWriter, usable_writer
from kernels.paged_kv import Pool
from kernels.pointwise import Pointwise, compiled_pointwise, norm, rotary_tables
from kernels.sequences import Sequences, check_sequences, slots
from kernels.weights import Affine, LayerWeights, Weights

# Queries (tokens, heads, head_dim), new keys and values (tokens, kv_heads, head_dim), and the layer's views of the
# pool, which hold the new keys and values already; gives (tokens, heads x head_dim).
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, KV], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Forward:
    """A pass made ready by `prepare_forward`: everything that does not change between rounds is on the device.

    Attributes
    ----------
    pointwise : Pointwise
        Whether the pieces between matrix products are compiled, and if not, why.
    kv_writer : KvWriter
        What writes K and V into the blocks.
    token_ids : torch.Tensor
        int64, (tokens,).
    positions : torch.Tensor
        int64, (tokens,): each token's place in its sequence.
    rotary : tuple of torch.Tensor
        Cosines and sines of these places; empty tensors where positions are learned.
    slot : tuple of torch.Tensor
        Block and offset in the block of each token, int64, (tokens,).
    last : torch.Tensor
        int64: the packed indices of the tokens whose logits are wanted, each sequence's last one.
    kv : tuple
        For each layer the views of the pool that K and V are written to.
    """

    device: Device
    weights: Weights
    pointwise: Pointwise
    kv_writer: KvWriter
    token_ids: torch.Tensor
    positions: torch.Tensor
    rotary: tuple[torch.Tensor, torch.Tensor]
    slot: tuple[torch.Tensor, torch.Tensor]
    last: torch.Tensor
    kv: tuple[KV, ...]

    def run(self, attention: Attention) -> torch.Tensor:
        """Enqueue the whole pass; logits of `last`, (last, vocab), there once the device is done."""
        return self._logits(*self._layers(attention))

    def fill(self, attention: Attention) -> None:
        """Enqueue the layers alone: K and V land in their blocks, no logits are made."""
        self._layers(attention)

    def outside_layers(self) -> torch.Tensor:
        """Enqueue embedding, final norm and LM head alone; the logits mean nothing."""
        return self._logits(self._embed(), None)

    def _layers(self, attention: Attention) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The residual stream behind the last layer, and what it still lacks: the next norm adds it."""
        x = self._embed()
        delta: torch.Tensor | None = None
        for layer, kv in zip(self.weights.layers, self.kv, strict=True):
            delta = self._attention(layer, kv, self._norm(x, delta, layer.attention_norm), attention)
            delta = self._mlp(layer, self._norm(x, delta, layer.mlp_norm))
        return x, delta

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

    def _attention(self, layer: LayerWeights, kv: KV, x: torch.Tensor, attention: Attention) -> torch.Tensor:
        shape = self.weights.shape
        qk_heads = shape.heads + shape.kv_heads
        qkv = linear(x, layer.qkv.weight, layer.qkv.bias).view(len(x), -1, shape.head_dim)
        qk, v = qkv[:, :qk_heads], qkv[:, qk_heads:]
        if shape.positions == "rotary":
            qk = self.pointwise.rotate(qk, *self.rotary, layer.qk_norm, shape.norm_eps)
        q, k = qk[:, : shape.heads], qk[:, shape.heads :]
        self.kv_writer.write(kv, self.slot, (k, v))
        return linear(attention(q, k, v, kv), layer.out.weight, layer.out.bias)

    def _mlp(self, layer: LayerWeights, x: torch.Tensor) -> torch.Tensor:
        up = linear(x, layer.up.weight, layer.up.bias)
        inner = self.pointwise.gate(up) if self.weights.shape.mlp == "gated" else relu_(up)
        return linear(inner, layer.down.weight, layer.down.bias)

    def _logits(self, x: torch.Tensor, delta: torch.Tensor | None) -> torch.Tensor:
        x = x[self.last] if delta is None else x[self.last] + delta[self.last]
        return linear(self._norm(x, None, self.weights.final_norm), self.weights.head)


def prepare_forward(
    device: Device,
    weights: Weights,
    pool: Pool,
    sequences: Sequences,
    compile: bool = False,
    ended: Sequence[bool] | None = None,
) -> Forward:
    """Everything of a pass that is not timed: checks, slots, positions, rotary tables, compilation.

    Parameters
    ----------
    compile : bool
        Fuse the pieces between matrix products with `torch.compile`. Where that fails they stay eager and
        `Forward.pointwise.refusal` says why.
    ended : sequence of bool, optional
        For each sequence whether the logits of its last token are wanted; by default of every one.

    Raises
    ------
    ValueError
        If pool, weights and sequences do not fit together.
    """
    shape, dtype, tokens = weights.shape, weights.dtype, sequences.token_ids.numel()
    check_pool(device, weights, pool)
    check_sequences(sequences, shape, pool)
    kv = tuple(pool.kv(layer) for layer in range(shape.layers))
    with device.on_stream(), torch.inference_mode():
        at = slots(sequences, pool.geometry.block_size)
        positions = torch.from_numpy(at.positions)
        width = shape.head_dim if shape.positions == "rotary" else 0
        cos, sin = rotary_tables(positions, width, shape.rope_theta, weights.embedding.dtype)
        ends = np.cumsum(sequences.lengths)[slice(None) if ended is None else np.asarray(ended, bool)]
        forward = Forward(
            device=device,
            weights=weights,
            pointwise=compiled_pointwise(shape, dtype, device, tokens) if compile else Pointwise(),
            kv_writer=usable_writer(device),
            token_ids=sequences.token_ids.to(device.torch_device),
            positions=positions.to(device.torch_device),
            rotary=(cos.to(device.torch_device), sin.to(device.torch_device)),
            slot=(
                torch.from_numpy(at.blocks).to(device.torch_device),
                torch.from_numpy(at.offsets).to(device.torch_device),
            ),
            last=torch.from_numpy(ends - 1).to(device.torch_device),
            kv=kv,
        )
        forward.kv_writer.warm_up(kv[0], shape.heads)
    device.wait()
    return forward


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
