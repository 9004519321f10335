"""One machine, model, method and layout as costs: what a swap and a recompute of some tokens take, with their draws."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.cost_model import CopyFit, PrefillFit
from analysis.intervals import Estimate
from kernels.shapes import Layout, ModelShape

Floats = NDArray[np.float64]
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Setting:
    """The constants that swap and recompute are compared on.

    Attributes
    ----------
    layout : str or None
        None: the whole sequence is one copy (method `contiguous`).
    swap_out : CopyFit or None
        None: load only, the host holds a copy already (a prefix cache).
    """

    shape: ModelShape
    dtype: str
    layout: Layout | None
    prefill: PrefillFit
    swap_in: CopyFit
    swap_out: CopyFit | None = None

    @property
    def trip(self) -> str:
        """What is swapped: "round trip" (out and in) or "load only" (in)."""
        return "load only" if self.swap_out is None else "round trip"

    def plan(self, tokens: float, block_size: float) -> tuple[float, float]:
        """Descriptors and bytes of one direction. At least one block; beyond, part of a block counts as its part."""
        if self.layout is None:
            return 1.0, tokens * self.shape.kv_bytes_per_token(self.dtype)
        blocks = max(1.0, tokens / block_size)
        nbytes = blocks * block_size * self.shape.kv_bytes_per_token(self.dtype)
        return blocks * self.shape.fragments_per_block(self.layout), nbytes

    def swap(self, tokens: float, block_size: float, preemptions: float = 1, keep: bool = False) -> Estimate:
        """Seconds of swapping `tokens` tokens out and in `preemptions` times.

        vLLM V0 frees the host copy when it swaps in (`block_manager.py`): k x (out + in). With the copy kept (`keep`):
        1 out and k in; what the sequence grew by in between is left out. Load only: k in.

        Raises
        ------
        BadFit
            If a fit is refused.
        """
        plan = self.plan(tokens, block_size)
        reads = _estimate(self.swap_in, plan) * preemptions
        if self.swap_out is None:
            return reads
        writes = _estimate(self.swap_out, plan)
        return _add(reads, writes * (1 if keep else preemptions))

    def recompute(self, tokens: float, preemptions: float = 1) -> Estimate:
        """Seconds of recomputing `tokens` tokens `preemptions` times. BadFit if the fit is refused."""
        return Estimate(self.prefill.seconds(tokens), self.prefill.draw_seconds(tokens)) * preemptions

    def at_rate(self, bytes_s: float) -> Setting:
        """The same with a link of `bytes_s` in both directions."""
        out = None if self.swap_out is None else self.swap_out.at_rate(bytes_s)
        return replace(self, swap_in=self.swap_in.at_rate(bytes_s), swap_out=out)

    def beyond_data(self, tokens: float, block_size: float) -> tuple[str, ...]:
        """Which fits are asked beyond the lengths, or the bytes a copy, that they were made from."""
        count, nbytes = self.plan(tokens, block_size)
        asked: dict[str, tuple[PrefillFit | CopyFit, float, str]]
        asked = {"prefill": (self.prefill, tokens, "tokens"), "swap in": (self.swap_in, nbytes / count, "bytes a copy")}
        if self.swap_out is not None:
            asked["swap out"] = (self.swap_out, nbytes / count, "bytes a copy")
        found = []
        for name, (fit, at, unit) in asked.items():
            if fit.points.empty:
                continue
            points = fit.points
            seen = points["tokens"] if "tokens" in points else points["bytes"] / points["descriptors"]
            if not seen.min() * (1 - ROUNDING) <= at <= seen.max() * (1 + ROUNDING):
                found.append(f"{name} is fitted to {seen.min():,.0f}..{seen.max():,.0f} {unit}, not to {at:,.0f}")
        return tuple(found)


def _estimate(fit: CopyFit, plan: tuple[float, float]) -> Estimate:
    return Estimate(fit.seconds(*plan), fit.draw_seconds(*plan))


def _add(first: Estimate, second: Estimate) -> Estimate:
    """Sum in which a term without draws is a constant (`Estimate` itself would drop the draws)."""
    if first.draws is None or second.draws is None:
        known = first.draws if first.draws is not None else second.draws
        other = second.value if first.draws is not None else first.value
        return Estimate(first.value + second.value, None if known is None else known + other)
    return first + second
