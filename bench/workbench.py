"""The memory of one session: an arena on either side of the link, made once, from which every case takes its pools."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from bench.cases import Case
from bench.memory import Needs, beside_pools, host_blocks, needs_of, passes, sequence_blocks
from bench.nvml import Nvml
from bench.verify import Ids, fill_random
from kernels.activations import Attending, attending_on
from kernels.device import Device, DoesNotFit, HostMemory, PinRefused, check_fits
from kernels.paged_kv import Pool, block_ids, sides
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
    since torch's pinned cache hands pages back from the wrong NUMA node (pytorch#160420). What is free is asked at the
    start, before anything is allocated: whether a case takes its weights first or its pool makes no difference.

    Parameters
    ----------
    cases : iterable of (Case, int)
        Every case of the session with its sweep's `pool_tokens`.
    """

    def __init__(self, device: Device, nvml: Nvml, cases: Iterable[tuple[Case, int]], seed: int) -> None:
        self.device, self.nvml, self.seed = device, nvml, seed
        self._cases = list(cases)
        self._free = device.free_bytes()
        self._attending: dict[tuple[str | None, str], Attending] = {}
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
        on_device, on_host = sides(case.placement or "contiguous")
        blocks = host_blocks(case, pool_tokens)
        pool, ids, company = self._on_device(case, on_device, blocks)
        arena = self.host_arena(blocks * case.geometry.block_bytes)
        host_ids = block_ids(on_host, sequence_blocks(case), blocks, 2 * self.seed + 1)
        return Placed(pool, ids, Pool(arena, case.geometry, blocks, "host"), host_ids, company)

    def place_on_device(self, case: Case) -> tuple[Pool, Ids, tuple[Ids, ...]]:
        """A device pool, and the blocks in random order of the case's sequences and of each of the company's.

        Raises
        ------
        DoesNotFit
            If there is no room.
        """
        return self._on_device(case, "scattered", sequence_blocks(case))

    def _on_device(self, case: Case, placement: str, blocks: int) -> tuple[Pool, Ids, tuple[Ids, ...]]:
        """The case's sequences in the first `blocks` blocks, all that is verified, and their company behind them."""
        own = block_ids(placement, sequence_blocks(case), blocks, 2 * self.seed)
        held = [case.geometry.blocks_for(length) for length in case.company_lengths]
        company = blocks + block_ids("scattered", sum(held), sum(held), 2 * self.seed)
        arena = self.device_arena((blocks + sum(held)) * case.geometry.block_bytes)
        pool = Pool(arena, case.geometry, blocks + sum(held), "device")
        return pool, own, tuple(np.split(company, np.cumsum(held)[:-1])) if held else ()

    def weights(self, case: Case) -> Weights:
        """Random weights of the case's model, kept until a case asks for another model's.

        Raises
        ------
        DoesNotFit
            If what the case computes, and its weights where others are held, need more than is free.
        """
        if self._weights and (self._weights.shape, self._weights.dtype) != (case.shape, case.dtype):
            self._weights = None  # the old ones go before the new ones come
        needs = self._needs(case)
        tokens = max((one.tokens for one in passes(case)), default=0)
        what = f"{case.model} with a pass of {tokens:,} tokens"
        check_fits(self.device, needs.working + (0 if self._weights else needs.weights), 0, what=what)
        if self._weights is None:
            self._weights = random_weights(case.shape, case.element, self.device, self.seed)
        return self._weights

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
        """Bytes the arenas may take on the device and on the host, beside what cases need for weights and for work."""
        free_device, free_host = self._free
        if self.device.backend == "cpu":
            budget = int(free_host * DEVICE_SHARE)
            half = (budget - beside_pools(self._all_needs, budget)) // 2
            return half, half
        budget = int(free_device * DEVICE_SHARE)
        return budget - beside_pools(self._all_needs, budget), int(free_host * HOST_SHARE)

    @cached_property
    def _all_needs(self) -> list[Needs]:
        return [self._needs(*sized) for sized in self._cases]

    def _needs(self, case: Case, pool_tokens: int = 0) -> Needs:
        return needs_of(case, pool_tokens, self._attending_of)

    def _attending_of(self, case: Case) -> Attending:
        """What of attention runs here for the case's model: asked of the device once."""
        key = case.model, case.element
        if key not in self._attending:
            self._attending[key] = attending_on(self.device, case.shape, case.element)
        return self._attending[key]

    def _largest(self, side: Literal["device", "host"], room: int) -> int:
        """Bytes of the largest pool that fits."""
        sizes = (need.device_pool if side == "device" else need.host_pool for need in self._all_needs)
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
