"""A staging buffer in two halves: which bytes of a plan go through which half when, and who waits for whom.

A plan's bytes are laid out in the order of their host addresses, so that neighbours on the host cross the link in one
copy wherever their blocks lie on the device. That row of bytes is cut into chunks of half the buffer; chunk after
chunk goes through alternating halves, so that one half is filled while the other is emptied.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch

from kernels.copy_plan import Addresses, CopyPlan
from kernels.device import Device
from kernels.pieces import Descriptors

SMALLEST_HALF = 4096


@dataclass(frozen=True, eq=False)
class Chunk:
    """Bytes that are in one half at a time.

    Attributes
    ----------
    fragments : Descriptors
        Between the device pool and the half.
    runs : Descriptors
        Between the half and the host: one for each stretch of host memory that the chunk touches.
    """

    fragments: Descriptors
    runs: Descriptors


def half_bytes(staging_bytes: int) -> int:
    """Bytes of a half: a multiple of SMALLEST_HALF, so that words stay aligned; ValueError if there is none."""
    half = staging_bytes // 2 // SMALLEST_HALF * SMALLEST_HALF
    if half < SMALLEST_HALF:
        raise ValueError(f"staging_bytes: {staging_bytes:,}; two halves need {2 * SMALLEST_HALF:,} or more")
    return half


def chunks(plan: CopyPlan, buffer: int, half: int) -> list[Chunk]:
    """The plan's chunks, in order of host addresses, for a buffer at address `buffer` with halves of `half` bytes."""
    out = plan.direction == "swap_out"
    pool, host = (plan.src, plan.dst) if out else (plan.dst, plan.src)
    order = np.argsort(host, kind="stable")
    order = order[plan.sizes[order] > 0]
    pool, host, sizes = pool[order], host[order], plan.sizes[order]
    if not len(sizes):
        return []
    ends = np.cumsum(sizes, dtype=np.uint64)
    offsets, total = ends - sizes, int(ends[-1])
    breaks = np.concatenate(([True], host[:-1] + sizes[:-1] != host[1:]))

    fragments = _through_halves(pool, offsets, total, buffer, half)
    runs = _through_halves(host[breaks], offsets[breaks], total, buffer, half)
    if out:
        runs = [_turned(part) for part in runs]
    else:
        fragments = [_turned(part) for part in fragments]
    return [Chunk(*pair) for pair in zip(fragments, runs, strict=True)]


def _through_halves(addresses: Addresses, offsets: Addresses, total: int, buffer: int, half: int) -> list[Descriptors]:
    """What lies at `addresses` and begins at `offsets` of the row: from there to the buffer, chunk by chunk."""
    cuts = np.union1d(offsets, np.arange(0, total, half, dtype=np.uint64))
    whose = np.searchsorted(offsets, cuts, side="right") - 1
    sizes = np.append(cuts[1:], np.uint64(total)) - cuts
    chunk, within = np.divmod(cuts, np.uint64(half))
    staged = np.uint64(buffer) + chunk % np.uint64(2) * np.uint64(half) + within
    copies = Descriptors(addresses[whose] + (cuts - offsets[whose]), staged, sizes)
    edges = np.searchsorted(chunk, np.arange(int(chunk[-1]) + 2, dtype=np.uint64))
    return [copies.part(int(first), int(last)) for first, last in pairwise(edges)]


def _turned(copies: Descriptors) -> Descriptors:
    return Descriptors(copies.dst, copies.src, copies.sizes)


class Order(Protocol):
    """Who waits for whom, while chunks are filled by one stream and emptied by another."""

    link_stream: int

    def begin(self) -> None:
        """Let both streams start behind what the device's own stream holds."""

    def before_filling(self, half: int) -> None:
        """Fill `half` only once it is empty."""

    def between(self, half: int) -> None:
        """Empty `half` only once it is full."""

    def after_emptying(self, half: int) -> None:
        """Note that `half` is going to be empty."""

    def end(self, half: int) -> None:
        """Let the device's own stream wait until `half`, the last one, is empty."""


class _AtOnce:
    """A CPU: every step is done when it returns."""

    link_stream = 0

    def begin(self) -> None:
        """Nothing is pending."""

    def before_filling(self, half: int) -> None:
        """It is empty."""

    def between(self, half: int) -> None:
        """It is full."""

    def after_emptying(self, half: int) -> None:
        """It is empty."""

    def end(self, half: int) -> None:
        """It is done."""


class _TwoStreams:
    """Kernels on the device's own stream, copies on another, and an event for each state of each half."""

    def __init__(self, device: Device, kernel_first: bool) -> None:
        with device.on_stream():
            self._own = torch.cuda.current_stream()
        self._link = _link_stream(device)
        self.link_stream: int = self._link.cuda_stream
        self._fills, self._empties = (self._own, self._link) if kernel_first else (self._link, self._own)
        self._begun, *events = [_recorded(self._own) for _ in range(5)]  # made here: issuing makes none
        self._full, self._empty = events[:2], events[2:]

    def begin(self) -> None:
        self._begun.record(self._own)
        self._link.wait_event(self._begun)

    def before_filling(self, half: int) -> None:
        self._fills.wait_event(self._empty[half])

    def between(self, half: int) -> None:
        self._full[half].record(self._fills)
        self._empties.wait_event(self._full[half])

    def after_emptying(self, half: int) -> None:
        self._empty[half].record(self._empties)

    def end(self, half: int) -> None:
        self._own.wait_event(self._empty[half])


def order(device: Device, kernel_first: bool) -> Order:
    """The order on `device`; `kernel_first` if kernels fill the halves and copies empty them (swap out)."""
    return _AtOnce() if device.backend == "cpu" else _TwoStreams(device, kernel_first)


_link_streams: dict[int, torch.cuda.Stream] = {}


def _link_stream(device: Device) -> torch.cuda.Stream:
    """The stream for copies beside the device's own, one for all plans.

    torch hands out 32 streams in turn, so the 32nd plan would get the device's own stream and overlap nothing.
    """
    if device.stream_handle not in _link_streams:
        stream = torch.cuda.Stream(device.torch_device)  # type: ignore[no-untyped-call]
        if stream.cuda_stream == device.stream_handle:
            stream = torch.cuda.Stream(device.torch_device)  # type: ignore[no-untyped-call]
        _link_streams[device.stream_handle] = stream
    return _link_streams[device.stream_handle]


def _recorded(stream: torch.cuda.Stream) -> Any:
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(stream)  # torch makes the CUDA event at its first record
    return event
