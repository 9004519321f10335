"""Descriptors cut for kernels, with numpy: pieces of one size at most, and the widest word that fits all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.copy_plan import Addresses, CopyPlan

WORDS = (16, 8, 4, 1)  # bytes one thread moves at once; 16 is the widest access of every chip before sm_100
GROUP_BYTES = 16 << 10  # bytes a program has in flight: 16 programs of it cover 2 us of latency at 128 GB/s
NARROW_GROUP_WORDS = 4096  # 16 words a thread of 256; more of them would not fit its registers
SMALLEST_PIECE = 256  # below it a group would hold more addresses than data


@dataclass(frozen=True, eq=False)
class Descriptors:
    """Copies without the memory they lie in.

    Attributes
    ----------
    src, dst, sizes : numpy.ndarray
        uint64 addresses and bytes, shape (descriptors,).
    """

    src: Addresses
    dst: Addresses
    sizes: Addresses

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def of(cls, plan: CopyPlan) -> Descriptors:
        """The descriptors of a plan."""
        return cls(plan.src, plan.dst, plan.sizes)

    def part(self, first: int, last: int) -> Descriptors:
        """Descriptors `first` up to, not including, `last`."""
        return Descriptors(self.src[first:last], self.dst[first:last], self.sizes[first:last])


def word_bytes(copies: Descriptors) -> int:
    """The widest of `WORDS` that divides every address and every size.

    One word for the whole plan: sizes that are no multiple of 16 get a narrower word rather than a tail of their own,
    since in a pool they make addresses odd as well.
    """
    bits = [np.bitwise_or.reduce(numbers) for numbers in (copies.src, copies.dst, copies.sizes)]
    together = int(np.bitwise_or.reduce(np.array(bits, dtype=np.uint64)))
    return next(word for word in WORDS if together % word == 0)


def group_bytes(word: int) -> int:
    """Bytes that one program moves at a time: GROUP_BYTES, less where words are narrow."""
    return min(GROUP_BYTES, NARROW_GROUP_WORDS * word)


def piece_bytes(copies: Descriptors, word: int) -> int:
    """Bytes of a piece: the power of two that holds the largest descriptor, from SMALLEST_PIECE to a whole group.

    Powers of two keep the number of compiled kernels small (vLLM's Triton copy does the same up to 8 KiB).
    """
    largest = int(copies.sizes.max(initial=0))
    return min(max(SMALLEST_PIECE, 1 << (largest - 1).bit_length() if largest else 0), group_bytes(word))


def split(copies: Descriptors, limit: int) -> Descriptors:
    """The same bytes in descriptors of `limit` bytes at most, in the same order; those without bytes vanish."""
    if not len(copies) or (int(copies.sizes.max()) <= limit and int(copies.sizes.min()) > 0):
        return copies
    counts = -(-copies.sizes.astype(np.int64) // limit)
    whose = np.repeat(np.arange(len(copies)), counts)
    within = np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts)
    skipped = within.astype(np.uint64) * np.uint64(limit)
    sizes = np.minimum(copies.sizes[whose] - skipped, np.uint64(limit))
    return Descriptors(copies.src[whose] + skipped, copies.dst[whose] + skipped, sizes)
