"""Sequences packed together for a prefill: their tokens, their blocks, and the slot each token's K and V go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch

from kernels.paged_kv import Pool
from kernels.shapes import ModelShape


@dataclass(frozen=True, eq=False)
class Sequences:
    """Prompts one behind the other.

    Attributes
    ----------
    token_ids : torch.Tensor
        int64, one-dimensional, on the host: all tokens of the first sequence, then of the second ...
    lengths : sequence of int
        Tokens of each sequence.
    block_ids : sequence of numpy.ndarray
        For each sequence the blocks of the pool that hold it, in token order. Blocks past its end are left alone.
    """

    token_ids: torch.Tensor
    lengths: Sequence[int]
    block_ids: Sequence[np.ndarray]


class Run(NamedTuple):
    """Neighbouring sequences of one length, which one attention call serves."""

    start: int
    batch: int
    length: int


@dataclass(frozen=True, eq=False)
class Slots:
    """Where each token stands in its sequence and in the pool; int64 arrays of shape (tokens,)."""

    positions: np.ndarray
    blocks: np.ndarray
    offsets: np.ndarray


def slots(sequences: Sequences, block_size: int) -> Slots:
    """Find the position, the block and the offset in the block of every token.

    Offset and block together are vLLM's `slot_mapping` (slot = block x block_size + offset), kept apart because blocks
    are not evenly spaced in every layout.
    """
    positions = [np.arange(length, dtype=np.int64) for length in sequences.lengths]
    blocks = [
        np.asarray(ids, np.int64)[at // block_size] for ids, at in zip(sequences.block_ids, positions, strict=True)
    ]
    packed = np.concatenate(positions)
    return Slots(packed, np.concatenate(blocks), packed % block_size)


def runs(lengths: Sequence[int]) -> tuple[Run, ...]:
    """Cut the packed tokens into runs of sequences of equal length."""
    found, start = [], 0
    for length, group in groupby(lengths):
        batch = len(list(group))
        found.append(Run(start, batch, length))
        start += batch * length
    return tuple(found)


def check_sequences(sequences: Sequences, shape: ModelShape, pool: Pool) -> None:
    """Refuse what would read or write out of bounds on the device.

    Raises
    ------
    ValueError
        If tokens and lengths disagree, a token is not in the vocabulary, a sequence is empty or longer than the model
        allows, or its blocks are too few, not in the pool, or written twice.
    """
    ids, lengths = sequences.token_ids, sequences.lengths
    if ids.dim() != 1 or ids.dtype != torch.int64 or ids.device.type != "cpu":
        raise ValueError(
            f"token ids are {ids.dtype} {tuple(ids.shape)} on {ids.device}; one row of int64 on the host is needed"
        )
    if not lengths or min(lengths) < 1 or sum(lengths) != ids.numel():
        raise ValueError(f"lengths {list(lengths)} must be 1 or more each and add up to the {ids.numel()} token ids")
    if max(lengths) > shape.max_positions:
        raise ValueError(
            f"a sequence of {max(lengths)} tokens; {shape.name} was made for at most {shape.max_positions}"
        )
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= shape.vocab:
        raise ValueError(f"token ids {low} to {high}; {shape.name} has 0 to {shape.vocab - 1}")
    _check_blocks(sequences, pool)


def _check_blocks(sequences: Sequences, pool: Pool) -> None:
    if len(sequences.block_ids) != len(sequences.lengths):
        raise ValueError(f"block ids of {len(sequences.block_ids)} sequences for {len(sequences.lengths)} lengths")
    written = []
    for number, (length, ids) in enumerate(zip(sequences.lengths, sequences.block_ids, strict=True)):
        needed = pool.geometry.blocks_for(length)
        if len(ids) < needed:
            raise ValueError(f"sequence {number}: {length} tokens need {needed} blocks; {len(ids)} were given")
        written.append(np.asarray(ids[:needed]))
    all_ids = np.concatenate(written)
    if all_ids.min() < 0 or all_ids.max() >= pool.blocks:
        raise ValueError(f"block ids {all_ids.min()} to {all_ids.max()}; the pool has 0 to {pool.blocks - 1}")
    if np.unique(all_ids).size != all_ids.size:
        raise ValueError("a block is held twice: every block of a prefill belongs to one place of one sequence")
