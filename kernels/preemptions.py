"""Sequences preempted again and again while they grow, each way of bringing them back done over and over.

Nothing is computed between one preemption and the next. The decode steps by which sequences grow cost every policy the
same and are left out: to a swap the grown tokens are bytes that lie in the device's blocks already, to a recompute they
are known tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.copy_plan import CopyPlan
from kernels.device import Device
from kernels.paged_kv import Pool
from kernels.recovery import fronts
from kernels.sequences import Sequences
from kernels.swap import HostCopy, Swap, prepare_swap
from kernels.transformer import Prefill, prepare
from kernels.weights import Weights


@dataclass(frozen=True, eq=False)
class Preemption:
    """Sequences leave the device's memory, and come back.

    Attributes
    ----------
    length : int
        Tokens that each sequence has by then.
    out : Swap or None
        Takes their blocks to the host; None if they are dropped and computed again.
    back : Swap or Prefill
        Restores their blocks.
    """

    length: int
    out: Swap | None
    back: Swap | Prefill

    def issue(self) -> None:
        """Enqueue the way out, and behind it the way back."""
        if self.out:
            self.out.issue()
        self.back.issue()

    @property
    def plans(self) -> tuple[CopyPlan | None, CopyPlan | None]:
        """What crosses the link out and in; None where nothing is swapped."""
        return self.out.plan if self.out else None, self.back.plan if isinstance(self.back, Swap) else None


@dataclass(frozen=True, eq=False)
class Preemptions:
    """All preemptions, made ready by `prepare_swaps` or `prepare_recomputes`.

    Attributes
    ----------
    each : tuple of Preemption
        In the order in which they happen.
    """

    each: tuple[Preemption, ...]

    def issue(self) -> None:
        """Enqueue all of them on the device's stream, each behind the one before."""
        for preemption in self.each:
            preemption.issue()

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence at each preemption."""
        return [preemption.length for preemption in self.each]

    @property
    def bytes_out(self) -> list[int]:
        """Bytes swapped out at each preemption."""
        return [_nbytes(preemption.plans[0]) for preemption in self.each]

    @property
    def bytes_in(self) -> list[int]:
        """Bytes swapped in after each preemption."""
        return [_nbytes(preemption.plans[1]) for preemption in self.each]

    @property
    def plans(self) -> list[CopyPlan]:
        """Everything that crosses the link, in order."""
        return [plan for preemption in self.each for plan in preemption.plans if plan]


def growing(length: int, growth: int, times: int) -> list[int]:
    """Tokens of a sequence at each of its preemptions, the first at `length` tokens and `growth` more each time."""
    return [length + number * growth for number in range(times)]


def prepare_swaps(
    device: Device, pool: Pool, sequences: Sequences, host: HostCopy, lengths: Sequence[int], keep: bool = False
) -> Preemptions:
    """Swap out and in at every preemption.

    Parameters
    ----------
    pool : Pool
        Device memory.
    sequences : Sequences
        As they are at the last preemption.
    lengths : sequence of int
        Tokens of each of them at each preemption (`growing`).
    keep : bool
        The host keeps its copy, and only blocks that are new or have changed go out: those from the block on in which
        the sequence went on growing. Else the copy is freed, as vLLM V0 does, and all blocks go out every time.

    Raises
    ------
    ValueError
        If `lengths` fall or exceed a sequence, or anything does not fit together.
    """
    _check(sequences, lengths)
    every, found, before = len(sequences.lengths), [], 0
    for length in lengths:
        first = _first_changed(before, length, pool.geometry.block_size) if keep else 0
        out = prepare_swap(device, pool, sequences, host, [first] * every, [length] * every, "swap_out")
        back = prepare_swap(device, pool, sequences, host, [0] * every, [length] * every, behind_swap_out=True)
        found.append(Preemption(length, out, back))
        before = length
    return Preemptions(tuple(found))


def prepare_recomputes(
    device: Device,
    weights: Weights,
    pool: Pool,
    sequences: Sequences,
    lengths: Sequence[int],
    attention: str | None = None,
    compile: bool = False,
) -> Preemptions:
    """Drop the blocks at every preemption, and compute them again with a whole prefill, logits included.

    Parameters otherwise as `prepare_swaps` and `kernels.transformer.prepare`.

    Raises
    ------
    ValueError
        If `lengths` fall or exceed a sequence, or anything does not fit together.
    """
    _check(sequences, lengths)
    parts = (fronts(sequences, [length] * len(sequences.lengths)) for length in lengths)
    prefills = [prepare(device, weights, pool, part, attention, compile) for part in parts]
    return Preemptions(tuple(Preemption(*made) for made in zip(lengths, [None] * len(lengths), prefills, strict=True)))


def _first_changed(before: int, now: int, block_size: int) -> int:
    """The token at which the first block begins that a sequence has touched while it grew; `now` if there is none."""
    return now if now == before else before // block_size * block_size


def _check(sequences: Sequences, lengths: Sequence[int]) -> None:
    shortest = min(sequences.lengths)
    if not lengths or list(lengths) != sorted(lengths) or not 1 <= lengths[0] <= lengths[-1] <= shortest:
        raise ValueError(
            f"lengths {list(lengths)} at the preemptions; they must be 1 or more, never fall, "
            f"and end with no more than the {shortest} tokens of the shortest sequence"
        )


def _nbytes(plan: CopyPlan | None) -> int:
    return plan.nbytes if plan else 0
