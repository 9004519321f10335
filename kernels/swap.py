"""Swaps of preempted sequences: which blocks leave for the host or come back from it, and by which copy method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels import copy_methods, copy_plan
from kernels.copy_methods import Issue
from kernels.copy_plan import CopyPlan, Direction
from kernels.device import Device
from kernels.paged_kv import Pool
from kernels.sequences import Sequences


@dataclass(frozen=True, eq=False)
class HostCopy:
    """Where the host holds the sequences, and how they cross the link.

    Attributes
    ----------
    pool : Pool
        Host memory.
    block_ids : sequence of numpy.ndarray
        For each sequence its blocks in that pool, in token order.
    method : str
        One of `kernels.copy_methods.METHODS`.
    options : mapping
        The method's own options.
    """

    pool: Pool
    block_ids: Sequence[np.ndarray]
    method: str = "memcpy_loop"
    options: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Swap:
    """Blocks on their way out or in, on one stream.

    Attributes
    ----------
    device : Device
        Whose stream carries them.
    plan : CopyPlan
        What crosses the link.
    copy : callable
        The copy method, bound to the plan.
    """

    device: Device
    plan: CopyPlan
    copy: Issue

    def issue(self) -> None:
        """Enqueue the copies."""
        self.device.enqueue(self.copy)


def prepare_swap(
    device: Device,
    pool: Pool,
    sequences: Sequences,
    host: HostCopy,
    first: Sequence[int],
    last: Sequence[int],
    direction: Direction = "swap_in",
    behind_swap_out: bool = False,
) -> Swap:
    """A swap of the blocks that hold each sequence's tokens from `first`, the start of a block, to before `last`.

    Parameters
    ----------
    pool : Pool
        Device memory.
    sequences : Sequences
        Of which only the blocks are asked for.
    direction : {"swap_in", "swap_out"}
        Whether `pool` or the host is written.
    behind_swap_out : bool
        As in `kernels.copy_plan.build`.

    Raises
    ------
    ValueError
        If either side has too few blocks, or pools and blocks do not fit together.
    """
    parts = [
        slice(begin // pool.geometry.block_size, pool.geometry.blocks_for(end)) if end > begin else slice(0)
        for begin, end in zip(first, last, strict=True)
    ]
    ends = [(pool, _parts(sequences.block_ids, parts, "device")), (host.pool, _parts(host.block_ids, parts, "host"))]
    (src, src_ids), (dst, dst_ids) = ends if direction == "swap_out" else reversed(ends)
    plan = copy_plan.build(src, src_ids, dst, dst_ids, behind_swap_out)
    method = copy_methods.find(host.method)
    return Swap(device, plan, method.prepare(plan, device, **host.options) if plan.descriptors else _nothing)


def _parts(held: Sequence[np.ndarray], parts: Sequence[slice], side: str) -> np.ndarray:
    """The blocks that are to be swapped, of all sequences."""
    for ids, part in zip(held, parts, strict=True):
        if len(ids) < part.stop:
            raise ValueError(f"{part.stop} blocks of a sequence are to be swapped; the {side} has {len(ids)}")
    return np.concatenate([np.asarray(ids, np.int64)[part] for ids, part in zip(held, parts, strict=True)])


def _nothing() -> None:
    """The copy of no block, which some methods refuse."""
