"""Prefill of a decoder stack that writes K and V into a pool's blocks: the recompute side of the comparison.

Linear layers run on all tokens packed together, attention per sequence, the LM head on last tokens only, as a serving
engine's prefill does. What one model has and another has not follows from its `ModelShape`. Tokens that the blocks
hold already (`Sequences.cached`: a cached prefix) are attended to and not computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from kernels.attention import attend_packed, pinned, usable_attention, with_tables
from kernels.device import Device
from kernels.forward import Forward, check_pool, prepare_forward
from kernels.kv_writer import KV, KvWriter
from kernels.paged_kv import Pool
from kernels.pointwise import Pointwise
from kernels.sequences import Run, Sequences, check_sequences
from kernels.weights import Weights

__all__ = ["TIMED_PART", "Prefill", "check_pool", "prepare"]

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
    parts : tuple
        Runs of sequences that are alike, each with the blocks of its sequences where it has cached tokens.
    forward : Forward
        The pass itself.
    """

    attention: str
    parts: tuple[tuple[Run, torch.Tensor | None], ...]
    forward: Forward

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self.forward.device

    @property
    def weights(self) -> Weights:
        """The model."""
        return self.forward.weights

    @property
    def pointwise(self) -> Pointwise:
        """Whether the pieces between matrix products are compiled, and if not, why."""
        return self.forward.pointwise

    @property
    def kv_writer(self) -> KvWriter:
        """What writes K and V into the blocks."""
        return self.forward.kv_writer

    def issue(self) -> torch.Tensor:
        """Enqueue the prefill on the device's stream.

        Returns
        -------
        torch.Tensor
            Logits of each sequence's last token, (batch, vocab); there once the device is done.
        """
        with self._running():
            return self.forward.run(self._attend)

    def fill(self) -> None:
        """Enqueue the layers alone: K and V land in their blocks, final norm and LM head are left out."""
        with self._running():
            self.forward.fill(self._attend)

    def outside_layers(self) -> torch.Tensor:
        """Enqueue what a prefill does once, however many layers it has: embedding, final norm and LM head.

        Where N of M layers are timed, only the rest of the time may be scaled by M / N. Returns as `issue` does; its
        logits mean nothing.
        """
        with self._running():
            return self.forward.outside_layers()

    @contextmanager
    def _running(self) -> Iterator[None]:
        with self.device.on_stream(), torch.inference_mode(), pinned(self.attention):
            yield

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: KV) -> torch.Tensor:
        return attend_packed(q, k, v, kv, self.parts, self.attention)


def prepare(
    device: Device,
    weights: Weights,
    pool: Pool,
    sequences: Sequences,
    attention: str | None = None,
    compile: bool = False,
    ended: Sequence[bool] | None = None,
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
    ended : sequence of bool, optional
        For each sequence whether `issue` is to give its logits; by default of every one.

    Raises
    ------
    ValueError
        If pool, weights and sequences do not fit together, or `attention` is unknown.
    """
    check_pool(device, weights, pool)
    check_sequences(sequences, weights.shape, pool)
    longest, cached = max(sequences.lengths), max(sequences.cached)
    name = attention or usable_attention(device, weights.shape, weights.dtype, longest, cached)[0]
    with pinned(name):  # refuses an unknown name
        forward = prepare_forward(device, weights, pool, sequences, compile, ended)
    return Prefill(name, with_tables(sequences, pool.geometry.block_size, device.torch_device), forward)
