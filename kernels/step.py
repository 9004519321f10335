"""A pass made ready to be issued, whatever its sequences do in it: decode, prefill, or both beside each other.

Linear layers run on all new tokens packed together; what differs between a decoding and a prefilling sequence is the
attention, and the packed tokens know which is whose.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kernels.attention import attend_packed, pinned, usable_attention
from kernels.device import Device
from kernels.forward import Forward
from kernels.kv_writer import KV, KvWriter
from kernels.pointwise import Pointwise
from kernels.sequences import Run
from kernels.weights import Weights

if TYPE_CHECKING:
    from kernels.paged_attention import PagedAttention

PAGED = "PAGED_TRITON"  # the name of kernels/paged_attention.py; any other is a backend of kernels/attention.py
Parts = tuple[tuple[Run, torch.Tensor | None], ...]


@dataclass(frozen=True, eq=False)
class Step:
    """Everything of a pass that does not change between rounds is already on the device.

    Attributes
    ----------
    attention : str
        The attention backend that `parts` run on, and no other; `PAGED` where there are none.
    parts : tuple
        Runs of sequences that are alike, each with the blocks of its sequences where it has cached tokens.
    forward : Forward
        The pass itself.
    paged : PagedAttention, optional
        The kernel that serves the sequences before `parts`: one new token each, K and V read from the blocks in place.
    """

    attention: str
    parts: Parts
    forward: Forward
    paged: PagedAttention | None = None

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self.forward.device

    @property
    def weights(self) -> Weights:
        """The model."""
        return self.forward.weights

    @property
    def pointwise(self) -> Pointwise:
        """Whether the pieces between matrix products are compiled, and if not, why."""
        return self.forward.pointwise

    @property
    def kv_writer(self) -> KvWriter:
        """What writes K and V into the blocks."""
        return self.forward.kv_writer

    def issue(self) -> torch.Tensor:
        """Enqueue the pass on the device's stream: the new tokens' K and V go into the blocks.

        Returns
        -------
        torch.Tensor
            Logits of each sequence's last token, (batch, vocab); there once the device is done.
        """
        with self._running():
            return self.forward.run(self._attend)

    def fill(self) -> None:
        """Enqueue the layers alone: K and V land in their blocks, final norm and LM head are left out."""
        with self._running():
            self.forward.fill(self._attend)

    def outside_layers(self) -> torch.Tensor:
        """Enqueue what a pass does once, however many layers it has: embedding, final norm and LM head.

        Where N of M layers are timed, only the rest of the time may be scaled by M / N. Returns as `issue` does; its
        logits mean nothing.
        """
        with self._running():
            return self.forward.outside_layers()

    @contextmanager
    def _running(self) -> Iterator[None]:
        backend = pinned(self.attention) if self.parts else nullcontext()
        with self.device.on_stream(), torch.inference_mode(), backend:
            yield

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: KV) -> torch.Tensor:
        if self.paged is None:
            return attend_packed(q, k, v, kv, self.parts, self.attention)
        decoded = self.paged(q[: len(self.paged.contexts)], kv)
        if not self.parts:
            return decoded
        return torch.cat((decoded, attend_packed(q, k, v, kv, self.parts, self.attention)))


def usable_for(device: Device, weights: Weights, parts: Parts) -> tuple[str, ...]:
    """Attention backends that run `parts` of a pass here; `PAGED` alone where there are none."""
    if not parts:
        return (PAGED,)
    longest, cached = max(run.length for run, _ in parts), max(run.cached for run, _ in parts)
    return usable_attention(device, weights.shape, weights.dtype, longest, cached)
