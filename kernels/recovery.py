"""Ways to bring preempted sequences back, as things that can be issued: swap, recompute, and a hybrid of both.

A preempted sequence has `length` tokens, the last of which its model has not seen yet or sees again: a recompute is a
prefill over all of them (`kernels.transformer.prepare`, or in chunks `kernels.chunked.prepare_chunks`) and ends with
the last token's logits. A swap restores K and V only. So that both end alike, **resume** is a swap of what the first
`length - 1` tokens hold and one decode step of the last token: weights read once, its K and V, its logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kernels.chunked import ChunkedPrefill, prepare_chunks
from kernels.decode import Decode, prepare_decode
from kernels.device import Device
from kernels.overlap import overlap
from kernels.paged_kv import Pool
from kernels.sequences import Sequences
from kernels.swap import HostCopy, Swap, prepare_swap
from kernels.transformer import Prefill, prepare
from kernels.weights import Weights

__all__ = ["HostCopy", "Hybrid", "Resume", "Swap", "front_tokens", "prepare_hybrid", "prepare_resume", "prepare_swap"]


@dataclass(frozen=True, eq=False)
class Resume:
    """Swap in, then one decode step behind it on the same stream.

    Attributes
    ----------
    swap : Swap
        Of all tokens but each sequence's last.
    step : Decode
        The last token's.
    compute : callable
        Enqueues the step; a recording of that (`kernels.graph.capture`) does as well.
    """

    swap: Swap
    step: Decode
    compute: Callable[[], torch.Tensor]

    def issue(self) -> torch.Tensor:
        """Enqueue both; logits of each sequence's last token, (batch, vocab)."""
        self.swap.issue()
        return self.compute()


@dataclass(frozen=True, eq=False)
class Hybrid:
    """The front of every sequence is computed while the rest is swapped in on the sibling's stream.

    Attributes
    ----------
    device : Device
        Computes; its sibling copies.
    front_tokens : tuple of int
        Tokens of each sequence that are computed: whole blocks, or all.
    front : Prefill, ChunkedPrefill or None
        What computes them; None if there are none.
    compute : callable or None
        Enqueues the front: without final norm and LM head unless it is all and ends with logits. A recording does as
        well.
    rest : Swap or None
        Brings the other blocks in, untouched by any computation; None if there are none.
    step : Decode or None
        The last token's step, behind both; None if the front is all, or nothing is to be resumed.
    """

    device: Device
    front_tokens: tuple[int, ...]
    front: Prefill | ChunkedPrefill | None
    compute: Callable[[], torch.Tensor | None] | None
    rest: Swap | None
    step: Decode | None

    def issue(self) -> torch.Tensor | None:
        """Enqueue everything: the copies start behind what the device holds, the step behind copies and front.

        Returns
        -------
        torch.Tensor or None
            The logits of each sequence's last token, (batch, vocab), where it was prepared to resume.
        """
        logits = overlap(self.device, self._compute, self._copy)
        return self.step.issue() if self.step else logits

    def _copy(self) -> None:
        if self.rest:
            self.rest.issue()

    def _compute(self) -> torch.Tensor | None:
        return self.compute() if self.compute else None


def prepare_resume(
    device: Device, weights: Weights, pool: Pool, sequences: Sequences, host: HostCopy, compile: bool = False
) -> Resume:
    """Swap in all but the last token, which is decoded; parameters as `prepare_hybrid`."""
    _check(sequences)
    before_last = [length - 1 for length in sequences.lengths]
    step = prepare_decode(device, weights, pool, _last_tokens(sequences), compile=compile)
    return Resume(prepare_swap(device, pool, sequences, host, [0] * len(before_last), before_last), step, step.issue)


def prepare_hybrid(
    device: Device,
    weights: Weights,
    pool: Pool,
    sequences: Sequences,
    host: HostCopy,
    fraction: float,
    resume: bool = True,
    chunk_tokens: int = 0,
    compile: bool = False,
) -> Hybrid:
    """Compute `fraction` of every sequence, swap the rest in.

    Parameters
    ----------
    sequences : Sequences
        All tokens of each sequence, nothing cached, and the blocks it comes back to.
    fraction : float
        From 0 (all is swapped in) to 1 (all is computed), rounded down to whole blocks.
    resume : bool
        End with the last token's logits. Where the front is not all, its K and V then come from its decode step and
        not across the link.
    chunk_tokens : int
        Compute the front in chunks of so many tokens; 0: in one piece.
    compile : bool
        As in `kernels.transformer.prepare`.

    Raises
    ------
    ValueError
        If `fraction` is not from 0 to 1, tokens are cached already, or anything does not fit together.
    """
    _check(sequences)
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction {fraction}; it must be from 0 (swap) to 1 (recompute)")
    front = front_tokens(sequences.lengths, fraction, pool.geometry.block_size)
    decodes = resume and fraction < 1
    held = [length - decodes for length in sequences.lengths]
    rest = prepare_swap(device.sibling(), pool, sequences, host, front, held)
    prefill = _prepare_front(device, weights, pool, fronts(sequences, front), chunk_tokens, compile)
    return Hybrid(
        device=device,
        front_tokens=front,
        front=prefill,
        compute=_issue_of(prefill, logits=resume and not decodes),
        rest=rest if rest.plan.descriptors else None,
        step=prepare_decode(device, weights, pool, _last_tokens(sequences), compile=compile) if decodes else None,
    )


def front_tokens(lengths: Sequence[int], fraction: float, block_size: int) -> tuple[int, ...]:
    """Tokens of each sequence to compute: `fraction` of them in whole blocks; all of them only if it is 1."""
    if fraction == 1:
        return tuple(lengths)
    # The last decimals of a product such as 0.29 x 100 must not cost a block.
    return tuple(
        min(int(fraction * length / block_size + 1e-9), (length - 1) // block_size) * block_size for length in lengths
    )


def _check(sequences: Sequences) -> None:
    if any(sequences.cached):
        raise ValueError(f"cached {list(sequences.cached)}; a sequence that is brought back holds nothing yet")


def _prepare_front(
    device: Device, weights: Weights, pool: Pool, front: Sequences, chunk_tokens: int, compile: bool
) -> Prefill | ChunkedPrefill | None:
    if not front.lengths:
        return None
    if chunk_tokens:
        return prepare_chunks(device, weights, pool, front, chunk_tokens, compile=compile)
    return prepare(device, weights, pool, front, compile=compile)


def _issue_of(front: Prefill | ChunkedPrefill | None, logits: bool) -> Callable[[], torch.Tensor | None] | None:
    if front is None:
        return None
    return front.issue if logits else front.fill


def fronts(sequences: Sequences, tokens: Sequence[int]) -> Sequences:
    """The first `tokens` tokens of each sequence; sequences of which that leaves none are left out."""
    starts = np.cumsum(sequences.lengths) - np.asarray(sequences.lengths)
    kept = [number for number, count in enumerate(tokens) if count]
    ids = [sequences.token_ids[starts[number] :][: tokens[number]] for number in kept]
    return Sequences(
        torch.cat(ids) if ids else sequences.token_ids[:0],
        [tokens[number] for number in kept],
        [sequences.block_ids[number] for number in kept],
    )


def _last_tokens(sequences: Sequences) -> Sequences:
    """The last token of each sequence, all before it cached."""
    ends = torch.from_numpy(np.cumsum(sequences.lengths) - 1)
    return Sequences(
        sequences.token_ids[ends],
        [1] * len(ends),
        sequences.block_ids,
        [length - 1 for length in sequences.lengths],
    )
