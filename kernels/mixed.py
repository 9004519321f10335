"""A step that decodes some sequences and prefills others in one pass, as engines batch them (Sarathi-Serve; vLLM).

What a recomputed sequence adds to such a step is what it costs in company: the weights are read once for all.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from kernels.attention import pinned, with_tables
from kernels.decode import bind_paged, no_paged
from kernels.device import Device
from kernels.forward import check_pool, prepare_forward
from kernels.paged_kv import Pool
from kernels.sequences import Sequences, check_sequences
from kernels.step import PAGED, Step, usable_for
from kernels.transformer import prepare
from kernels.weights import Weights


def prepare_mixed(
    device: Device,
    weights: Weights,
    pool: Pool,
    sequences: Sequences,
    attention: str | None = None,
    compile: bool = False,
) -> Step:
    """Everything of a mixed step that is not timed; parameters and errors otherwise as `kernels.transformer.prepare`.

    Parameters
    ----------
    sequences : Sequences
        First those that decode, with one new token behind 1 or more cached, then those that prefill; either may be
        missing. Where the Triton kernel runs it serves the first ones, else they are gathered.
    attention : str, optional
        The backend of those that prefill, and of all where the kernel does not run.
    """
    decoding = decoding_first(sequences)
    if not decoding or no_paged(device, weights.dtype):
        return prepare(device, weights, pool, sequences, attention, compile)
    check_pool(device, weights, pool)
    check_sequences(sequences, weights.shape, pool)
    parts = with_tables(sequences, pool.geometry.block_size, device.torch_device)
    prefilling = tuple((run, table) for run, table in parts if run.start >= decoding)
    name = (attention if prefilling else PAGED) or usable_for(device, weights, prefilling)[0]
    if prefilling:
        pinned(name)  # refuses an unknown name
    forward = prepare_forward(device, weights, pool, sequences, compile)
    return Step(name, prefilling, forward, bind_paged(device, weights, pool, _first(sequences, decoding)))


def decoding_first(sequences: Sequences) -> int:
    """How many sequences decode before the first that does not."""
    pairs = zip(sequences.lengths, sequences.cached, strict=True)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == 1 and pair[1] > 0, pairs))


def _first(sequences: Sequences, count: int) -> Sequences:
    """The first `count` sequences, of one new token each."""
    return replace(
        sequences,
        token_ids=sequences.token_ids[:count],
        lengths=sequences.lengths[:count],
        block_ids=sequences.block_ids[:count],
        cached=sequences.cached[:count],
    )
