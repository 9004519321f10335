"""Did the bytes arrive? Compared once a case, on the host, as integers, through the pools and not through the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.device import Device
from kernels.paged_kv import Pool

Ids = NDArray[np.int64]


class NotVerified(AssertionError):
    """A copy whose destination does not hold the source's bytes. Its case leaves no number."""


@dataclass(frozen=True, eq=False)
class Carried:
    """What one copy should have carried: blocks of one pool to blocks of another, pair by pair."""

    src: Pool
    src_ids: Ids
    dst: Pool
    dst_ids: Ids


def verify_copy(issue: Callable[[], object], device: Device, src: Pool, src_ids: Ids, dst: Pool, dst_ids: Ids) -> None:
    """`verify_all` for one copy."""
    verify_all(issue, device, [Carried(src, src_ids, dst, dst_ids)])


def verify_all(issue: Callable[[], object], device: Device, carried: Sequence[Carried]) -> None:
    """Run `issue` once and compare every byte of every block.

    The destination is first filled with the complement of what should arrive, so that a byte that is not copied is
    wrong for certain, whatever lay there before.

    Raises
    ------
    NotVerified
        With the number of wrong bytes and the first block, layer and K or V that holds one.
    """
    expected = [read_blocks(copy.src, copy.src_ids) for copy in carried]
    for copy, bytes_ in zip(carried, expected, strict=True):
        write_blocks(copy.dst, copy.dst_ids, ~bytes_)
    device.wait()
    with device.on_stream():
        issue()
    device.wait()
    for copy, bytes_ in zip(carried, expected, strict=True):
        _compare(read_blocks(copy.dst, copy.dst_ids), bytes_)


def _compare(arrived: torch.Tensor, expected: torch.Tensor) -> None:
    if not torch.equal(arrived, expected):
        wrong = arrived != expected
        block, layer, kv, byte = (int(index) for index in wrong.nonzero()[0])
        raise NotVerified(
            f"{int(wrong.sum()):,} of {expected.numel():,} bytes did not arrive; the first is byte {byte} of "
            f"{'KV'[kv]}, layer {layer}, in the sequence's block {block}"
        )


def read_blocks(pool: Pool, ids: Ids) -> torch.Tensor:
    """A copy of the blocks on the host: uint8, shape (len(ids), layers, 2, piece_bytes)."""
    return _on_host(pool).bytes[torch.from_numpy(ids)]


def write_blocks(pool: Pool, ids: Ids, values: torch.Tensor) -> None:
    """Put `values` (as `read_blocks` gives them) into the blocks."""
    staged = _on_host(pool)
    staged.bytes[torch.from_numpy(ids)] = values
    pool.arena[: pool.nbytes].copy_(staged.arena)


def fill_random(arena: torch.Tensor, seed: int, chunk_bytes: int = 64 << 20) -> None:
    """Fill an arena of either memory with bytes of which no two chunks are alike. Zeros would copy faster than data.

    The bytes are drawn on the host once and made different from chunk to chunk by an addition, which is as fast as
    memory; ten gigabytes of random numbers are not.
    """
    drawn = np.random.default_rng(seed).integers(0, 1 << 64, chunk_bytes // 8, dtype=np.uint64)
    for index, start in enumerate(range(0, arena.numel(), chunk_bytes)):
        chunk = torch.from_numpy((drawn + np.uint64(index * 0x9E3779B97F4A7C15 % 2**64)).view(np.uint8))
        part = arena[start : start + chunk_bytes]
        part.copy_(chunk[: part.numel()])


def _on_host(pool: Pool) -> Pool:
    """The pool itself where it is host memory, else a copy of all of it: device memory is read by plain copies only."""
    return replace(pool, arena=pool.arena[: pool.nbytes].cpu(), memory="host")
