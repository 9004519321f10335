"""Chunked prefill: prompts cut where an engine's token budget cuts them, each chunk attending through the pool.

Engines bound the tokens of a step so that a long prompt does not hold up the decodes beside it (Sarathi-Serve, Agrawal
et al., OSDI 2024; vLLM's `max_num_batched_tokens`). A chunk computes its own tokens and reads the K and V of the chunks
before it from the blocks, so a recompute in small chunks pays for more attention reads and smaller matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch

from kernels.attention import usable_attention
from kernels.device import Device
from kernels.forward import check_pool
from kernels.paged_kv import Pool
from kernels.sequences import Sequences, check_sequences
from kernels.transformer import Prefill, prepare
from kernels.weights import Weights


@dataclass(frozen=True, eq=False)
class Chunk:
    """What one step computes.

    Attributes
    ----------
    sequences : Sequences
        The step's part of each sequence that it touches.
    ended : tuple of bool
        Which of them end here.
    """

    sequences: Sequences
    ended: tuple[bool, ...]


@final
@dataclass(frozen=True, eq=False)
class ChunkedPrefill:
    """A prefill in chunks, made ready by `prepare_chunks`.

    Attributes
    ----------
    chunks : tuple of Prefill
        In the order in which they run.
    """

    chunks: tuple[Prefill, ...]

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self.chunks[0].device

    @property
    def attention(self) -> str:
        """The attention backend that runs in every chunk."""
        return self.chunks[0].attention

    def issue(self) -> torch.Tensor:
        """Enqueue every chunk; logits of each sequence's last token, (batch, vocab), from the chunk where it ends.

        A chunk in which no sequence ends leaves out the final norm and the LM head.
        """
        with self.device.on_stream():
            ends = [logits for chunk in self.chunks if (logits := _issue(chunk)) is not None]
            return ends[0] if len(ends) == 1 else torch.cat(ends)

    def fill(self) -> None:
        """Enqueue every chunk without final norm and LM head."""
        for chunk in self.chunks:
            chunk.fill()


def prepare_chunks(
    device: Device,
    weights: Weights,
    pool: Pool,
    sequences: Sequences,
    chunk_tokens: int,
    attention: str | None = None,
    compile: bool = False,
) -> ChunkedPrefill:
    """Cut `sequences` into chunks and prepare each; parameters and errors otherwise as `kernels.transformer.prepare`.

    Parameters
    ----------
    chunk_tokens : int
        New tokens a chunk has, over all sequences: where one sequence ends within a chunk the next one begins. One
        attention backend serves all chunks.

    Raises
    ------
    ValueError
        Also if `chunk_tokens` is below 1.
    """
    check_pool(device, weights, pool)
    check_sequences(sequences, weights.shape, pool)
    cut = chunks(sequences, chunk_tokens)
    if attention is None:
        longest = max(max(chunk.sequences.lengths) for chunk in cut)
        cached = max(max(chunk.sequences.cached) for chunk in cut)
        attention = usable_attention(device, weights.shape, weights.dtype, longest, cached)[0]
    return ChunkedPrefill(
        tuple(prepare(device, weights, pool, chunk.sequences, attention, compile, chunk.ended) for chunk in cut)
    )


def chunks(sequences: Sequences, chunk_tokens: int) -> list[Chunk]:
    """The chunks of `sequences`, all of `chunk_tokens` new tokens but the last; ValueError if that is below 1."""
    if chunk_tokens < 1:
        raise ValueError(f"chunk_tokens {chunk_tokens}; a chunk needs 1 token or more")
    total = sequences.token_ids.numel()
    return [_between(sequences, start, min(start + chunk_tokens, total)) for start in range(0, total, chunk_tokens)]


def _between(sequences: Sequences, start: int, stop: int) -> Chunk:
    """The packed tokens from `start` to `stop`, with what came before them in their sequences counted as cached."""
    numbers, lengths, cached, ended = zip(*_parts(sequences, start, stop), strict=True)
    part = replace(
        sequences,
        token_ids=sequences.token_ids[start:stop],
        lengths=lengths,
        block_ids=[sequences.block_ids[number] for number in numbers],
        cached=cached,
    )
    return Chunk(part, ended)


def _parts(sequences: Sequences, start: int, stop: int) -> Iterator[tuple[int, int, int, bool]]:
    """Number, new tokens, cached tokens and whether it ends, of each sequence between two packed tokens."""
    ends = np.cumsum(sequences.lengths)
    for number, (end, length) in enumerate(zip(ends.tolist(), sequences.lengths, strict=True)):
        first, last = max(start, end - length), min(stop, end)
        if first < last:
            yield number, last - first, sequences.cached[number] + first - (end - length), last == end


def _issue(chunk: Prefill) -> torch.Tensor | None:
    if len(chunk.forward.last):
        return chunk.issue()
    chunk.fill()
    return None
