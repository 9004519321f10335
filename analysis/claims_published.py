"""Claims judged on other people's measurements: published prefills, copies, links and served times to first token.

Pairs of recompute and swap are of one GPU family (an A100 has 312 TFLOP/s on either board, while its link may be full
or half), so each verdict names both sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis import published as pub
from analysis.claim_types import Answer, Claim, Verdict, answer
from analysis.efficiencies import idle_link_rates
from analysis.intervals import Interval
from kernels.shapes import ModelShape

FAMILIES = ("A100", "H100", "H200", "B200", "L40S")
NOT_SERVING = "llama.cpp"  # no serving engine's prefill: it would flatter swap
LOOP = "cudaMemcpyAsync per block (DMA)"


@dataclass(frozen=True)
class Pair:
    """Published recompute seconds over published swap in+out seconds of as many bytes.

    `link` names the machine whose link rate was used, `method` the prefill; `block_size` is None for large copies.
    """

    family: str
    link: str
    model: str
    tokens: int
    ratio: float
    sources: tuple[str, str]
    method: str
    block_size: int | None = None

    def times(self, factor: float) -> Pair:
        """The same with recompute times `factor`."""
        return replace(self, ratio=self.ratio * factor)

    def is_of(self, model: object, tokens: object) -> bool:
        """Whether it is of this model and length."""
        return (self.model, self.tokens) == (model, tokens)

    @property
    def label(self) -> str:
        """The case without its machine."""
        block = f", block {self.block_size}" if self.block_size else ""
        return f"{self.model}, {self.tokens} tokens{block} ({self.method})"


def family(hardware: str) -> str:
    """The GPU family of a published hardware name; empty if it is none of `FAMILIES` or stands for several GPUs."""
    words = hardware.split("-")
    return words[0] if words[0] in FAMILIES else ""


def large_copy_rates(published: pd.DataFrame) -> Iterator[tuple[str, str, float, float, str]]:
    """(family, hardware, swap-in bytes/s, swap-out bytes/s, source) of links of which both directions are known."""
    rows = idle_link_rates(published)[["hardware", "direction", "value", "source"]]
    for series in pub.copy_series(published):
        if series.method == LOOP:
            rate = {"hardware": series.hardware, "direction": series.direction, "value": float(series.bytes_s.max())}
            rows = pd.concat([rows, pd.DataFrame([rate | {"source": series.source}])])
    for (hardware, source), group in rows.groupby(["hardware", "source"]):
        best = group.groupby("direction")["value"].max()
        if family(str(hardware)) and {"swap_in", "swap_out"} <= set(best.index):
            yield family(str(hardware)), str(hardware), best["swap_in"], best["swap_out"], str(source)


def large_copy_pairs(published: pd.DataFrame, least_tokens: int = 256) -> list[Pair]:
    """Every published prefill of a known model against every link of its GPU family, cache moved in large copies."""
    found, links = [], list(large_copy_rates(published))
    for series in pub.prefill_series(published, kind="prefill_total_s"):
        if series.method.startswith(NOT_SERVING):
            continue
        for name, hardware, rate_in, rate_out, source in links:
            if name != family(series.hardware) or (shape := known_shape(series.model)) is None:
                continue
            for tokens, seconds in zip(series.tokens.astype(int), series.seconds, strict=True):
                nbytes = tokens * shape.kv_bytes_per_token(series.dtype)
                ratio = float(seconds / (nbytes / rate_in + nbytes / rate_out))
                if tokens >= least_tokens:
                    names = (series.source, source)
                    found.append(Pair(name, hardware, series.model, int(tokens), ratio, names, series.method))
    return found


def known_shape(model: str) -> ModelShape | None:
    """The shape of a published model name, None if its geometry is not known."""
    try:
        return pub.find_shape(model)
    except ValueError:
        return None


def block_pairs(published: pd.DataFrame, model: str, tokens: int, block_sizes: Iterable[int]) -> dict[int, Pair]:
    """Recompute against a loop of one copy a fragment of `layer_split`, by block size, on the GPU of the copy rows.

    Seconds of one copy are linear between published sizes, which is how a fixed cost and a rate add up.
    """
    shape = pub.find_shape(model)
    loops = {series.direction: series for series in pub.copy_series(published) if series.method == LOOP}
    gpu = family(loops["swap_in"].hardware)
    rows = [s for s in pub.prefill_series(published, model=model, kind="prefill_total_s") if family(s.hardware) == gpu]
    series = next(s for s in rows if tokens in s.tokens)
    recompute = float(series.seconds[list(series.tokens).index(tokens)])
    link, names = loops["swap_in"].hardware, (series.source, loops["swap_in"].source)
    found = {}
    for block_size in block_sizes:
        size = shape.fragment_bytes("layer_split", block_size, series.dtype)
        one = [_one_copy_s(loop, size) for loop in loops.values()]
        if None not in one:
            swap = sum(filter(None, one)) * (tokens // block_size) * shape.fragments_per_block("layer_split")
            found[block_size] = Pair(gpu, link, model, tokens, recompute / swap, names, series.method, block_size)
    return found


def _one_copy_s(loop: pub.CopySeries, size: int) -> float | None:
    """Seconds of one copy of `size` bytes; None outside the published sizes."""
    if not loop.fragment_bytes.min() <= size <= loop.fragment_bytes.max():
        return None
    return float(np.interp(size, loop.fragment_bytes, loop.seconds / loop.descriptors))


def served_pairs(published: pd.DataFrame) -> list[Pair]:
    """Served time to first token by prefill over twice the one by loading: swap out taken as long as swap in."""
    found = []
    for load in pub.load_series(published):
        for cold in pub.prefill_series(published, hardware=load.hardware, model=load.model, kind="ttft_s"):
            both = sorted(set(cold.tokens) & set(load.tokens))
            for tokens in both if cold.source == load.source else []:
                seconds = [float(s.seconds[list(s.tokens).index(tokens)]) for s in (cold, load)]
                names = (cold.source, load.source)
                ratio = seconds[0] / (2 * seconds[1])
                gpu = family(load.hardware)
                found.append(Pair(gpu, load.hardware, load.model, int(tokens), ratio, names, cold.method))
    return found


def judge_pairs(
    claim: Claim, pairs: list[Pair], outcomes: list[bool], words: str, pick: Callable[[Pair], float]
) -> Verdict:
    """A verdict on the pairs of one machine: the pair where `pick` is largest, the range, and on what it depends."""
    verdict = answer(list(outcomes))
    shown = max(pairs, key=pick)
    ends = Interval(min(pair.ratio for pair in pairs), max(pair.ratio for pair in pairs))
    sources = ", ".join(dict.fromkeys(short(name) for pair in pairs for name in pair.sources))
    models = " and ".join(dict.fromkeys(pair.model for pair in pairs))
    where = f"{models}, {_span(pair.tokens for pair in pairs)} tokens, {words}"
    held = [pair.label for pair, outcome in zip(pairs, outcomes, strict=True) if outcome]
    only = f"; it holds in {len(held)} of {len(pairs)} cases: {_listed(held)}" if verdict is Answer.DEPENDS else ""
    return claim.says(
        verdict,
        f"Recompute / swap in+out is {_ends(ends)} over {where}{only}.",
        found=shown.ratio,
        interval=ends,
        origin=f"published ({sources})",
        machine=f"{shown.family}, link of {shown.link}",
        where=where,
    )


def largest(pair: Pair) -> float:
    """Pick the pair where recompute does worst."""
    return pair.ratio


def smallest(pair: Pair) -> float:
    """Pick the pair where recompute does best."""
    return -pair.ratio


def farthest(pair: Pair) -> float:
    """Pick the pair where the two differ most."""
    return abs(math.log(pair.ratio))


def _ends(ends: Interval) -> str:
    low, high = f"{ends.low:.3g}", f"{ends.high:.3g}"
    return low if low == high else f"{low} to {high}"


def _span(values: Iterable[int]) -> str:
    found = sorted(set(values))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _listed(labels: list[str]) -> str:
    return "; ".join(labels[:4]) + (f"; and {len(labels) - 4} more" if len(labels) > 4 else "")


def short(source: str) -> str:
    """A source without its licence and title."""
    return source.split(" (")[0].split(",")[0]


def by_link(pairs: list[Pair]) -> list[list[Pair]]:
    """Pairs grouped by family and link, in order."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair.family, pair.link), []).append(pair)
    return list(groups.values())


def exponents(tokens: Iterable[float], seconds: Iterable[float]) -> list[tuple[int, int, float]]:
    """(from, to, local exponent of the time over the tokens) between neighbouring lengths."""
    points = sorted(zip(tokens, seconds, strict=True))
    return [(int(a), int(b), math.log(tb / ta) / math.log(b / a)) for (a, ta), (b, tb) in pairwise(points)]
