"""Did the bytes arrive? Compared once a case, on the host, as integers, through the pools and not through the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.device import Device
from kernels.paged_kv import Pool

Ids = NDArray[np.int64]
PART_BYTES = 16 << 20
_staging: dict[str, torch.Tensor] = {}  # host memory that device pools are read into, by what it is used for


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
    sources = [_on_host(copy.src, copy.src_ids, f"source {place}") for place, copy in enumerate(carried)]
    for copy, source in zip(carried, sources, strict=True):
        _spoil(copy, source)
    device.wait()
    with device.on_stream():
        issue()
    device.wait()
    for copy, source in zip(carried, sources, strict=True):
        _compare(copy, source)


def _spoil(copy: Carried, source: Pool) -> None:
    staged = _on_host(copy.dst, copy.dst_ids, "destination")
    for _, src_ids, dst_ids in _parts(copy):
        staged.bytes[dst_ids] = ~source.bytes[src_ids]
    _put_back(staged, copy.dst)


def _compare(copy: Carried, source: Pool) -> None:
    arrived, wrong, first = _on_host(copy.dst, copy.dst_ids, "destination"), 0, ""
    for start, src_ids, dst_ids in _parts(copy):
        here, there = arrived.bytes[dst_ids], source.bytes[src_ids]
        if not torch.equal(here, there):
            places = (here != there).nonzero()
            block, layer, kv, byte = (int(index) for index in places[0])
            first = first or f"byte {byte} of {'KV'[kv]}, layer {layer}, in the sequence's block {start + block}"
            wrong += len(places)
    if wrong:
        nbytes = len(copy.src_ids) * copy.src.geometry.block_bytes
        raise NotVerified(f"{wrong:,} of {nbytes:,} bytes did not arrive; the first is {first}")


def _parts(copy: Carried) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Blocks by the handful: what is compared at once stays small."""
    step = max(1, PART_BYTES // copy.src.geometry.block_bytes)
    for start in range(0, len(copy.src_ids), step):
        part = slice(start, start + step)
        yield start, torch.from_numpy(copy.src_ids[part]), torch.from_numpy(copy.dst_ids[part])


def read_blocks(pool: Pool, ids: Ids) -> torch.Tensor:
    """A copy of the blocks on the host: uint8, shape (len(ids), layers, 2, piece_bytes)."""
    return _on_host(pool, ids, "destination").bytes[torch.from_numpy(ids)]


def write_blocks(pool: Pool, ids: Ids, values: torch.Tensor) -> None:
    """Put `values` (as `read_blocks` gives them) into the blocks."""
    staged = _on_host(pool, ids, "destination")
    staged.bytes[torch.from_numpy(ids)] = values
    _put_back(staged, pool)


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


def _on_host(pool: Pool, ids: Ids, role: str) -> Pool:
    """The pool itself where it is host memory, else a copy of its blocks up to the last of `ids`, of the same numbers.

    Device memory is read by plain copies of contiguous bytes only, and not beyond: a company's blocks may be far more.
    The copy lies where the last one of its `role` lay, so that a gigabyte of pages is not mapped anew for every case.
    """
    if pool.memory == "host":
        return pool
    blocks = int(ids.max()) + 1 if len(ids) else 1
    nbytes = blocks * pool.geometry.block_bytes
    if _staging.get(role, torch.empty(0)).numel() < nbytes:
        _staging[role] = torch.empty(nbytes, dtype=torch.uint8)
    staged = Pool(_staging[role][:nbytes], pool.geometry, blocks, "host")
    _copy_contiguous(staged.bytes, pool.bytes[:blocks])
    return staged


def _put_back(staged: Pool, pool: Pool) -> None:
    """The blocks of `_on_host` into their pool."""
    if staged is not pool:
        _copy_contiguous(pool.bytes[: staged.blocks], staged.bytes)


def _copy_contiguous(into: torch.Tensor, out_of: torch.Tensor) -> None:
    """Copy (blocks, layers, 2, piece) in the largest parts that are contiguous on both sides."""
    if into.is_contiguous() and out_of.is_contiguous():
        into.copy_(out_of)
        return
    for index in range(into.shape[1]):
        _copy_contiguous(into[:, index], out_of[:, index])
