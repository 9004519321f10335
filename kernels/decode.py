"""A decode step: one new token for each of a batch of sequences whose K and V lie in the pool's blocks.

It is what a sequence that came back goes on with, and what swap has to add before it has what a recompute ends with:
the logits of the last token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.attention import usable_attention
from kernels.device import Device
from kernels.forward import check_pool, prepare_forward
from kernels.paged_kv import Pool
from kernels.sequences import Sequences, block_table, check_sequences
from kernels.step import PAGED, Step
from kernels.transformer import prepare
from kernels.triton_probe import no_kernels
from kernels.weights import Weights

if TYPE_CHECKING:
    from kernels.paged_attention import PagedAttention

__all__ = ["PAGED", "Decode", "bind_paged", "no_paged", "prepare_decode", "usable_decode_attention"]

PROGRAMS_A_MULTIPROCESSOR = 2

Decode = Step  # what `prepare_decode` gives


def prepare_decode(
    device: Device,
    weights: Weights,
    pool: Pool,
    sequences: Sequences,
    attention: str | None = None,
    compile: bool = False,
) -> Step:
    """Everything of a decode step that is not timed; parameters otherwise as `kernels.transformer.prepare`.

    Parameters
    ----------
    sequences : Sequences
        One new token each (`lengths` all 1); `cached` tokens before it are in the blocks, 1 or more.
    attention : str, optional
        `PAGED`, where K and V are read from the blocks in place, or one of `usable_attention`, which reads what was
        gathered first; by default the first of `usable_decode_attention`.

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
    if name != PAGED:
        return prepare(device, weights, pool, sequences, name, compile)
    paged = bind_paged(device, weights, pool, sequences)
    return Step(PAGED, (), prepare_forward(device, weights, pool, sequences, compile), paged)


def usable_decode_attention(device: Device, weights: Weights, cached: int) -> tuple[str, ...]:
    """What runs a decode step's attention here, the Triton kernel first."""
    paged = () if no_paged(device, weights.dtype) else (PAGED,)
    return paged or usable_attention(device, weights.shape, weights.dtype, 1, cached)


def no_paged(device: Device, dtype: str) -> str | None:
    """Why the Triton kernel does not serve sequences that decode here; None if it does."""
    if reason := no_kernels(device):
        return reason
    from kernels import paged_attention

    return None if dtype in paged_attention.DTYPES else f"it computes in {', '.join(paged_attention.DTYPES)} only"


def bind_paged(device: Device, weights: Weights, pool: Pool, sequences: Sequences) -> PagedAttention:
    """The kernels for one batch of sequences, compiled and loaded by a run over what the blocks hold now.

    Raises
    ------
    ValueError
        If they do not run here.
    """
    if reason := no_paged(device, weights.dtype):
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
    return paged
