"""Sequences packed together for one pass: their new tokens, their blocks, and the slot each token's K and V go to.

What a sequence holds already (a cached prefix, the chunks before this one, all but the token to decode) lies in its
blocks and is counted by `Sequences.cached`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch

from kernels.paged_kv import Pool
from kernels.shapes import ModelShape


@dataclass(frozen=True, eq=False)
class Sequences:
    """Prompts, or what is new of them, one behind the other.

    Attributes
    ----------
    token_ids : torch.Tensor
        int64, one-dimensional, on the host: all new tokens of the first sequence, then of the second ...
    lengths : sequence of int
        New tokens of each sequence.
    block_ids : sequence of numpy.ndarray
        For each sequence the blocks of the pool that hold it from its first token on, cached or new, in token order.
        Blocks past its end are left alone. A block that only holds cached tokens may belong to several sequences.
    cached : sequence of int
        Tokens of each sequence whose K and V are in its blocks already; 0 for all if left out.
    """

    token_ids: torch.Tensor
    lengths: Sequence[int]
    block_ids: Sequence[np.ndarray]
    cached: Sequence[int] = field(default=())

    def __post_init__(self) -> None:
        if not len(self.cached):
            object.__setattr__(self, "cached", (0,) * len(self.lengths))

    @property
    def contexts(self) -> list[int]:
        """Tokens of each sequence once the new ones are in: what its last token attends to."""
        return [cached + length for cached, length in zip(self.cached, self.lengths, strict=True)]


class Run(NamedTuple):
    """Neighbouring sequences that are alike, which one attention call serves.

    Attributes
    ----------
    start : int
        Packed index of the first one's first new token.
    batch, length, cached : int
        Sequences, and new and cached tokens of each.
    """

    start: int
    batch: int
    length: int
    cached: int = 0

    @property
    def tokens(self) -> slice:
        """The run's part of the packed tokens."""
        return slice(self.start, self.start + self.batch * self.length)


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
    positions = [
        np.arange(cached, cached + length, dtype=np.int64)
        for cached, length in zip(sequences.cached, sequences.lengths, strict=True)
    ]
    blocks = [
        np.asarray(ids, np.int64)[at // block_size] for ids, at in zip(sequences.block_ids, positions, strict=True)
    ]
    packed = np.concatenate(positions)
    return Slots(packed, np.concatenate(blocks), packed % block_size)


def runs(lengths: Sequence[int], cached: Sequence[int] = ()) -> tuple[Run, ...]:
    """Cut the packed tokens into runs of sequences that have as many new and as many cached tokens."""
    found, start = [], 0
    for (length, before), group in groupby(zip(lengths, cached or (0,) * len(lengths), strict=True)):
        batch = len(list(group))
        found.append(Run(start, batch, length, before))
        start += batch * length
    return tuple(found)


def block_table(sequences: Sequences, block_size: int) -> np.ndarray:
    """Blocks of each sequence up to its last new token, int64, (sequences, most blocks of one); the rest is 0."""
    needed = [-(-context // block_size) for context in sequences.contexts]
    table = np.zeros((len(needed), max(needed)), dtype=np.int64)
    for row, ids, count in zip(table, sequences.block_ids, needed, strict=True):
        row[:count] = ids[:count]
    return table


def check_sequences(sequences: Sequences, shape: ModelShape, pool: Pool) -> None:
    """Refuse what would read or write out of bounds on the device.

    Raises
    ------
    ValueError
        If tokens and lengths disagree, a token is not in the vocabulary, a sequence has no new token or is longer than
        the model allows, or its blocks are too few, not in the pool, or written by one sequence and held by another.
    """
    ids, lengths = sequences.token_ids, sequences.lengths
    if ids.dim() != 1 or ids.dtype != torch.int64 or ids.device.type != "cpu":
        raise ValueError(
            f"token ids are {ids.dtype} {tuple(ids.shape)} on {ids.device}; one row of int64 on the host is needed"
        )
    if not lengths or min(lengths) < 1 or sum(lengths) != ids.numel():
        raise ValueError(f"lengths {list(lengths)} must be 1 or more each and add up to the {ids.numel()} token ids")
    if len(sequences.cached) != len(lengths) or min(sequences.cached) < 0:
        raise ValueError(f"cached {list(sequences.cached)} must be 0 or more for each of {len(lengths)} sequences")
    longest = max(sequences.contexts)
    if not shape.can_compute(longest):
        raise ValueError(f"a sequence of {longest} tokens; {shape.name} has positions for {shape.max_positions}")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= shape.vocab:
        raise ValueError(f"token ids {low} to {high}; {shape.name} has 0 to {shape.vocab - 1}")
    _check_blocks(sequences, pool)


def _check_blocks(sequences: Sequences, pool: Pool) -> None:
    if len(sequences.block_ids) != len(sequences.lengths):
        raise ValueError(f"block ids of {len(sequences.block_ids)} sequences for {len(sequences.lengths)} lengths")
    held, written = [], []
    for number, (context, ids) in enumerate(zip(sequences.contexts, sequences.block_ids, strict=True)):
        needed = pool.geometry.blocks_for(context)
        if len(ids) < needed:
            raise ValueError(f"sequence {number}: {context} tokens need {needed} blocks; {len(ids)} were given")
        held.append(np.asarray(ids[:needed]))
        written.append(np.arange(needed) >= sequences.cached[number] // pool.geometry.block_size)
    all_ids, new = np.concatenate(held), np.concatenate(written)
    if all_ids.min() < 0 or all_ids.max() >= pool.blocks:
        raise ValueError(f"block ids {all_ids.min()} to {all_ids.max()}; the pool has 0 to {pool.blocks - 1}")
    if (np.bincount(all_ids)[all_ids[new]] > 1).any():
        raise ValueError("a block is held twice: one that is written belongs to one place of one sequence")
