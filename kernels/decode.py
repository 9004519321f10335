"""A decode step: one new token for each of a batch of sequences whose K and V lie in the pool's blocks.

It is what a sequence that came back goes on with, and what swap has to add before it has what a recompute ends with:
the logits of the last token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

from kernels.attention import attend_packed, pinned, usable_attention, with_tables
from kernels.device import Device
from kernels.forward import Attention, Forward, check_pool, prepare_forward
from kernels.kv_writer import KV, KvWriter
from kernels.paged_kv import Pool
from kernels.pointwise import Pointwise
from kernels.sequences import Sequences, block_table, check_sequences
from kernels.triton_probe import no_kernels
from kernels.weights import Weights

PAGED = "PAGED_TRITON"  # the name of kernels/paged_attention.py; any other is a backend of kernels/attention.py
PROGRAMS_A_MULTIPROCESSOR = 2


@dataclass(frozen=True, eq=False)
class Decode:
    """A step made ready by `prepare_decode`: everything that does not change between rounds is on the device.

    Attributes
    ----------
    attention : str
        `PAGED` where K and V are read from the blocks in place, else the backend that reads what was gathered first.
    forward : Forward
        The pass itself.
    attend : callable
        The attention of one layer.
    """

    attention: str
    forward: Forward
    attend: Attention

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self.forward.device

    @property
    def pointwise(self) -> Pointwise:
        """Whether the pieces between matrix products are compiled, and if not, why."""
        return self.forward.pointwise

    @property
    def kv_writer(self) -> KvWriter:
        """What writes K and V into the blocks."""
        return self.forward.kv_writer

    def issue(self) -> torch.Tensor:
        """Enqueue the step on the device's stream: the new tokens' K and V go into the blocks.

        Returns
        -------
        torch.Tensor
            Logits of the new tokens, (batch, vocab); there once the device is done.
        """
        with self._running():
            return self.forward.run(self.attend)

    def outside_layers(self) -> torch.Tensor:
        """Enqueue embedding, final norm and LM head alone, as `Prefill.outside_layers` does."""
        with self._running():
            return self.forward.outside_layers()

    @contextmanager
    def _running(self) -> Iterator[None]:
        backend = nullcontext() if self.attention == PAGED else pinned(self.attention)
        with self.device.on_stream(), torch.inference_mode(), backend:
            yield


def prepare_decode(
    device: Device,
    weights: Weights,
    pool: Pool,
    sequences: Sequences,
    attention: str | None = None,
    compile: bool = False,
) -> Decode:
    """Everything of a decode step that is not timed; parameters otherwise as `kernels.transformer.prepare`.

    Parameters
    ----------
    sequences : Sequences
        One new token each (`lengths` all 1); `cached` tokens before it are in the blocks, 1 or more.
    attention : str, optional
        `PAGED` or one of `usable_attention`; by default the first of `usable_decode_attention`.

    Raises
    ------
    ValueError
        If a sequence has not exactly one new token or nothing cached, or pool, weights and sequences do not fit
        together, or `attention` is unknown or does not run here.
    """
    if set(sequences.lengths) != {1} or min(sequences.cached) < 1:
        raise ValueError(
            f"a decode step takes 1 new token a sequence behind 1 or more cached; "
            f"these have {list(sequences.lengths)} behind {list(sequences.cached)}"
        )
    check_pool(device, weights, pool)
    check_sequences(sequences, weights.shape, pool)
    name = attention or usable_decode_attention(device, weights, max(sequences.cached))[0]
    attend = _paged(device, weights, pool, sequences) if name == PAGED else _gathered(device, pool, sequences, name)
    return Decode(name, prepare_forward(device, weights, pool, sequences, compile), attend)


def usable_decode_attention(device: Device, weights: Weights, cached: int) -> tuple[str, ...]:
    """What runs a decode step's attention here, the Triton kernel first."""
    paged = () if _no_paged(device, weights.dtype) else (PAGED,)
    return paged or usable_attention(device, weights.shape, weights.dtype, 1, cached)


def _no_paged(device: Device, dtype: str) -> str | None:
    if reason := no_kernels(device):
        return reason
    from kernels import paged_attention

    return None if dtype in paged_attention.DTYPES else f"it computes in {', '.join(paged_attention.DTYPES)} only"


def _gathered(device: Device, pool: Pool, sequences: Sequences, name: str) -> Attention:
    with pinned(name):  # refuses an unknown name
        parts = with_tables(sequences, pool.geometry.block_size, device.torch_device)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: KV) -> torch.Tensor:
        return attend_packed(q, k, v, kv, parts, name)

    return attend


def _paged(device: Device, weights: Weights, pool: Pool, sequences: Sequences) -> Attention:
    """The kernels, compiled and loaded by a run over what the blocks hold now."""
    if reason := _no_paged(device, weights.dtype):
        raise ValueError(f"{PAGED} does not run here: {reason}")
    from kernels.paged_attention import PagedAttention

    shape, where = weights.shape, device.torch_device
    facts = device.facts() or {}
    programs = PROGRAMS_A_MULTIPROCESSOR * int(facts["multiprocessors"])
    table = torch.from_numpy(block_table(sequences, pool.geometry.block_size))
    contexts = torch.tensor(sequences.contexts, dtype=torch.int32)
    with device.on_stream(), torch.inference_mode():
        paged = PagedAttention.of(
            table.to(where), contexts.to(where), shape.heads, shape.kv_heads, shape.head_dim, programs
        )
        q = torch.zeros(
            len(contexts), shape.heads + shape.kv_heads, shape.head_dim, dtype=weights.embedding.dtype, device=where
        )
        paged(q[:, : shape.heads], pool.kv(0))
    device.wait()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: KV) -> torch.Tensor:
        return paged(q, kv)

    return attend
