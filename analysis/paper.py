"""What the PagedAttention paper says of its Figure 19, tested on a panel: the crossing and two readings of "20%".

Section 7.3 (Kwon et al., SOSP 2023): "recomputation is more efficient when the block size is small, while swapping is
more efficient when the block size is large, though recomputation overhead is never higher than 20% of swapping's
latency." As written that is reading A; reading B is what their figure shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.figure19 import Panel
from analysis.intervals import Estimate

# The authors' script multiplies recompute by 0.9 without a comment; whether the printed figure did is not known.
# Source: sosp-ae-39/sosp-ae-astra @3180d2f, plot/plot_fig19_a.py.
AUTHORS_FACTOR = 0.9


@dataclass(frozen=True)
class Crossing:
    """Where recompute and swap in+out take equally long, in tokens a block, and which is faster below and above it."""

    block_size: float
    faster_below: str
    faster_above: str


@dataclass(frozen=True)
class Reading:
    """One reading of the sentence, with recompute as measured (factor 1) or times the authors' factor.

    Attributes
    ----------
    largest : Estimate
        The largest recompute / swap in+out over the block sizes, factor included.
    block_size : int
        Where it lies, in tokens.
    limit : float
        What it must not exceed.
    """

    name: str
    sentence: str
    factor: float
    limit: float
    largest: Estimate
    block_size: int

    @property
    def holds(self) -> bool:
        """Whether the largest ratio is within the limit."""
        return self.largest.value <= self.limit

    @property
    def clear(self) -> bool:
        """Whether the whole interval lies on one side of the limit (a ratio without interval is taken as it is)."""
        interval = self.largest.interval
        return interval is None or not interval.low <= self.limit < interval.high


def crossings(ratios: Sequence[tuple[int, float]]) -> list[Crossing]:
    """Block sizes where recompute / swap in+out passes 1: linear in log2(block size) and log(ratio).

    Parameters
    ----------
    ratios : sequence of (int, float)
        Block size in tokens, ascending, and recompute / swap in+out.
    """
    found = []
    last: tuple[float, float] | None = None
    equal: float | None = None
    for block_size, ratio in ratios:
        x, y = math.log2(block_size), math.log(ratio)
        if y == 0:
            equal = x if equal is None else equal
            continue
        if last is not None and (y > 0) != (last[1] > 0):
            at = last[0] - last[1] * (x - last[0]) / (y - last[1]) if equal is None else equal
            found.append(Crossing(2**at, _faster(last[1]), _faster(y)))
        last, equal = (x, y), None
    return found


def _faster(log_ratio: float) -> str:
    return "swap" if log_ratio > 0 else "recompute"


def verdict(panel: Panel) -> str:
    """The crossing in words, or which recovery is faster at every block size measured."""
    ratios = [(block_size, ratio.value) for block_size, ratio in panel.pairs]
    found = crossings(ratios)
    if found:
        return "; ".join(
            f"at {c.block_size:.3g} tokens ({c.faster_below} faster below, {c.faster_above} above)" for c in found
        )
    sides = {_faster(math.log(ratio)) for _, ratio in ratios if ratio != 1}
    always = f"{sides.pop()} always faster" if sides else "equally fast"
    return f"never within {ratios[0][0]}..{ratios[-1][0]}: {always}"


def readings(panel: Panel) -> list[Reading]:
    """Both readings, each with recompute as measured and times 0.9."""
    block_size, largest = max(panel.pairs, key=lambda pair: pair[1].value)
    sentences = {
        "A": ("recompute <= 20 % of swap in+out", 0.2),
        "B": ("recompute <= 20 % slower than swap in+out", 1.2),
    }
    return [
        Reading(name, sentence, factor, limit, largest * factor, block_size)
        for name, (sentence, limit) in sentences.items()
        for factor in (1.0, AUTHORS_FACTOR)
    ]
