"""A case's sequences as preemption leaves them: their tokens, their blocks on either side, and the way in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from bench.cases import OPTIONS, Case
from bench.prefills import fill_with_numbers, random_sequences
from bench.session import Session
from bench.verify import Carried, Ids
from bench.workbench import Workbench
from kernels import copy_methods
from kernels.copy_plan import Direction
from kernels.device import Device
from kernels.paged_kv import Pool
from kernels.sequences import Sequences
from kernels.swap import HostCopy, prepare_swap


@dataclass(frozen=True, eq=False)
class Preempted:
    """Sequences with blocks on both sides.

    Attributes
    ----------
    pool : Pool
        Device memory.
    sequences : Sequences
        Random tokens, and their blocks in that pool.
    host : HostCopy
        Their blocks on the host, and the copy method.
    """

    pool: Pool
    sequences: Sequences
    host: HostCopy

    def carried(self, first: int, last: int, direction: Direction = "swap_in") -> Carried:
        """What a swap of the blocks with each sequence's tokens `first`, a block's start, to before `last` carries."""
        geometry = self.pool.geometry
        part = slice(first // geometry.block_size, geometry.blocks_for(last))
        on_device, on_host = _joined(self.sequences.block_ids, part), _joined(self.host.block_ids, part)
        if direction == "swap_out":
            return Carried(self.pool, on_device, self.host.pool, on_host)
        return Carried(self.host.pool, on_host, self.pool, on_device)


def skip_unless_copied(case: Case, device: Device) -> None:
    """Skip a case whose copy method does not run here, with the reason."""
    assert case.method is not None
    if reason := copy_methods.find(case.method).unavailable(device):
        pytest.skip(reason)


def place_preempted(case: Case, session: Session) -> Preempted:
    """The case's sequences at their longest, with blocks on both sides that hold random bytes.

    Raises
    ------
    DoesNotFit, PinRefused
        As `Workbench.place`.
    """
    assert case.method is not None
    placed = session.workbench.place(case, session.axes(case).pool_tokens)
    lengths, ids = [case.length] * case.sequences, np.split(placed.device_ids, case.sequences)
    options = {name: value for name in OPTIONS if (value := getattr(case, name)) is not None}
    host = HostCopy(placed.host, np.split(placed.host_ids, case.sequences), case.method, options)
    return Preempted(placed.device, random_sequences(case, lengths, ids, seed=session.seed), host)


def hold_numbers(preempted: Preempted, workbench: Workbench) -> None:
    """Put numbers, for a decode step to attend to, into the sequences' blocks on either side."""
    fill_with_numbers(preempted.pool, workbench)
    lengths = preempted.sequences.lengths
    whole = (preempted.pool, preempted.sequences, preempted.host, [0] * len(lengths), lengths)
    prepare_swap(workbench.device, *whole, direction="swap_out").issue()
    workbench.device.wait()


def _joined(held: Sequence[Ids], part: slice) -> Ids:
    return np.concatenate([ids[part] for ids in held])
