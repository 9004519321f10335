"""Swap in of preempted sequences: which blocks come back from the host, and by which copy method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels import copy_methods, copy_plan
from kernels.copy_methods import Issue
from kernels.copy_plan import CopyPlan
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
    """Blocks on their way in, on one stream.

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
    device: Device, pool: Pool, sequences: Sequences, host: HostCopy, first: Sequence[int], last: Sequence[int]
) -> Swap:
    """A swap of the blocks that hold each sequence's tokens from `first`, the start of a block, to before `last`.

    Raises
    ------
    ValueError
        If the host has too few blocks, or pools and blocks do not fit together.
    """
    parts = [
        slice(begin // pool.geometry.block_size, pool.geometry.blocks_for(end)) if end > begin else slice(0)
        for begin, end in zip(first, last, strict=True)
    ]
    sides = []
    for side, held in (("device", sequences.block_ids), ("host", host.block_ids)):
        for ids, part in zip(held, parts, strict=True):
            if len(ids) < part.stop:
                raise ValueError(f"{part.stop} blocks of a sequence are to be swapped in; the {side} has {len(ids)}")
        sides.append(np.concatenate([np.asarray(ids, np.int64)[part] for ids, part in zip(held, parts, strict=True)]))
    plan = copy_plan.build(host.pool, sides[1], pool, sides[0])
    method = copy_methods.find(host.method)
    return Swap(device, plan, method.prepare(plan, device, **host.options) if plan.descriptors else _nothing)


def _nothing() -> None:
    """The copy of no block, which some methods refuse."""
