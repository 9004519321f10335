"""The memory of one session: an arena on either side of the link, made once, from which every case takes its pools."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from bench.cases import BOTH, Case
from bench.nvml import Nvml
from bench.verify import Ids, fill_random
from kernels.device import Device, DoesNotFit, HostMemory, PinRefused, check_fits
from kernels.paged_kv import Pool, block_ids, run_length, sides
from kernels.shapes import ModelShape, dtype_bytes
from kernels.weights import Weights, random_weights

DEVICE_SHARE = 0.95  # the rest is for torch's context and fragments of its allocator
HOST_SHARE = 0.5  # pinning more than half of the memory is refused or hurts the host (sglang#14282)
WARM_LINK_S = 0.1  # an idle link takes tens of milliseconds to come back to full speed (open-gpu-kernel-modules#731)


@dataclass(frozen=True)
class Placed:
    """A case's blocks: a pool and the sequence's block ids on either side.

    Attributes
    ----------
    company_ids : tuple of numpy.ndarray
        On the device, the blocks of each sequence of the company.
    """

    device: Pool
    device_ids: Ids
    host: Pool
    host_ids: Ids
    company_ids: tuple[Ids, ...] = ()


class Workbench:
    """Arenas, and facts about them, for the cases of one session.

    Arenas are sized for the largest case that fits and made when the first case asks; one pinned allocation a session,
    since torch's pinned cache hands pages back from the wrong NUMA node (pytorch#160420).

    Parameters
    ----------
    cases : iterable of (Case, int)
        Every case of the session with its sweep's `pool_tokens`.
    """

    def __init__(self, device: Device, nvml: Nvml, cases: Iterable[tuple[Case, int]], seed: int) -> None:
        self.device, self.nvml, self.seed = device, nvml, seed
        self._cases = list(cases)
        self._weights: Weights | None = None
        self._device_arena: torch.Tensor | None = None
        self._host: HostMemory | PinRefused | None = None
        self.bound = False
        self.link: dict[str, Any] | None = None

    def place(self, case: Case, pool_tokens: int) -> Placed:
        """Pools and block ids of a case.

        Raises
        ------
        DoesNotFit, PinRefused
            If the device or the host has no room for the pool, or the host cannot pin it.
        """
        blocks, needed = pool_blocks(case, pool_tokens), sequence_blocks(case)
        size = blocks * case.geometry.block_bytes
        on_device, on_host = sides(case.placement or "contiguous")
        pool, ids, company = self._on_device(case, on_device, blocks)
        return Placed(
            pool,
            ids,
            Pool(self.host_arena(size), case.geometry, blocks, "host"),
            block_ids(on_host, needed, blocks, 2 * self.seed + 1),
            company,
        )

    def place_on_device(self, case: Case) -> tuple[Pool, Ids, tuple[Ids, ...]]:
        """A device pool, and the blocks in random order of the case's sequences and of each of the company's.

        Raises
        ------
        DoesNotFit
            If there is no room.
        """
        return self._on_device(case, "scattered", held_blocks(case))

    def _on_device(self, case: Case, placement: str, blocks: int) -> tuple[Pool, Ids, tuple[Ids, ...]]:
        arena = self.device_arena(blocks * case.geometry.block_bytes)
        ids = block_ids(placement, held_blocks(case), blocks, 2 * self.seed)
        ends = np.cumsum([sequence_blocks(case), *map(case.geometry.blocks_for, case.company_lengths)])
        own, *company = np.split(ids, ends[:-1])
        return Pool(arena, case.geometry, blocks, "device"), own, tuple(company)

    def weights(self, case: Case) -> Weights:
        """Random weights of the case's model, kept until a case asks for another model's.

        Raises
        ------
        DoesNotFit
            If weights and activations need more than is free.
        """
        held = self._weights
        if held is None or (held.shape, held.dtype) != (case.shape, case.dtype):
            self._weights = held = None  # the old ones go before the new ones come
            what = f"a prefill of {case.tokens_at_once:,} tokens of {case.model}"
            check_fits(self.device, prefill_bytes(case), 0, what=what)
            self._weights = held = random_weights(case.shape, case.element, self.device, self.seed)
        return held

    def device_arena(self, nbytes: int) -> torch.Tensor:
        """The arena on the device; DoesNotFit if it has fewer than `nbytes`."""
        if self._device_arena is None:
            size = self._largest("device", self._room[0])
            self._device_arena = self.device.empty(size)
            fill_random(self._device_arena, self.seed)
        return _enough(self._device_arena, nbytes, "device", self._room[0])

    def host_arena(self, nbytes: int) -> torch.Tensor:
        """The arena on the host; DoesNotFit if it has fewer than `nbytes`, PinRefused if it cannot be pinned."""
        if self._host is None:
            self.bound = self.nvml.bind_host()
            try:
                self._host = self.device.host_memory(self._largest("host", self._room[1]))
                fill_random(self._host.tensor, self.seed + 1)
                self._warm_link()
            except PinRefused as refusal:
                self._host = refusal
        if isinstance(self._host, PinRefused):
            raise self._host
        return _enough(self._host.tensor, nbytes, "host", self._room[1])

    @property
    def pinned_by(self) -> str | None:
        """How host memory was pinned; None before it was."""
        return self._host.pinned_by if isinstance(self._host, HostMemory) else None

    @cached_property
    def _room(self) -> tuple[int, int]:
        """Bytes the arenas may take on the device and on the host: what is free less what the prefills will need.

        A prefill that does not fit even alone is going to be skipped, and gets no room kept.
        """
        free_device, free_host = self.device.free_bytes()
        prefills = (prefill_bytes(case) for case, _ in self._cases if case.computes)
        prefill = max((size for size in prefills if size <= free_device * DEVICE_SHARE), default=0)
        if self.device.backend == "cpu":
            half = (int(free_host * DEVICE_SHARE) - prefill) // 2
            return half, half
        return int(free_device * DEVICE_SHARE) - prefill, int(free_host * HOST_SHARE)

    def _largest(self, side: str, room: int) -> int:
        """Bytes of the largest pool that fits; a host arena serves only what crosses the link."""
        sizes = (
            pool_blocks(case, pool_tokens) * case.geometry.block_bytes
            for case, pool_tokens in self._cases
            if side == "device" or case.crosses_link
        )
        size = max((size for size in sizes if size <= room), default=0)
        check_fits(self.device, *((size, 0) if side == "device" else (0, size)), what=f"the {side} arena")
        return size

    def _warm_link(self) -> None:
        """Copy for a while, then read the link while it is busy."""
        if self.device.backend == "cpu" or self._device_arena is None:
            return
        assert isinstance(self._host, HostMemory)
        size = min(self._device_arena.numel(), self._host.tensor.numel())
        stop = time.perf_counter() + WARM_LINK_S
        with self.device.on_stream():
            while time.perf_counter() < stop:
                self._device_arena[:size].copy_(self._host.tensor[:size], non_blocking=True)
                self.device.wait()
            self._device_arena[:size].copy_(self._host.tensor[:size], non_blocking=True)
            self.link = self.nvml.link()
        self.device.wait()


def _enough(arena: torch.Tensor, nbytes: int, side: str, room: int) -> torch.Tensor:
    if nbytes > arena.numel():
        raise DoesNotFit(f"a pool of {nbytes:,} bytes in {side} memory; {max(room, 0):,} are free for pools")
    return arena


def sequence_blocks(case: Case) -> int:
    """Blocks that the case's sequences hold; each direction has its own where both run at once."""
    return case.sequences * (2 if case.direction == BOTH else 1) * case.geometry.blocks_for(case.length)


def held_blocks(case: Case) -> int:
    """Blocks that the case's sequences and their company hold on the device."""
    return sequence_blocks(case) + sum(map(case.geometry.blocks_for, case.company_lengths))


def pool_blocks(case: Case, pool_tokens: int) -> int:
    """Blocks of the case's pools: `pool_tokens` tokens (0: twice the sequences), never less than what is held.

    A ceiling and a prefill need no room to scatter.
    """
    needed = held_blocks(case)
    if case.placement is None:
        return needed
    blocks = max(needed, case.geometry.blocks_for(pool_tokens or 2 * case.tokens))
    run = run_length(case.placement) or 1
    return -(-blocks // run) * run


def prefill_bytes(case: Case) -> int:
    """Bytes of weights and, roughly, of activations that a prefill needs beside its pool."""
    shape, element = case.shape, dtype_bytes(case.element)
    return shape.weight_bytes(case.element) + case.tokens_at_once * _activation_width(shape) * element


def _activation_width(shape: ModelShape) -> int:
    """Elements a token that live at once: residual, normed input, Q K V, attention, and the MLP's widest moment."""
    return 4 * shape.hidden + 2 * (shape.q_width + 2 * shape.kv_width) + 3 * shape.ffn
