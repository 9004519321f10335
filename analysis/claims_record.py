"""Claims about block sizes, judged on published rows: prefills against copies of fragments, and rates by method."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis import claims_published as record
from analysis import published as pub
from analysis.claim_types import Answer, Claim, Verdict
from analysis.claims_blocks import COLLAPSE, PAPER_CASE

PAIR_CASES = (("llama-3-8b", 4096), ("opt-13b", 256))  # published prefills beside the copies of an H100
SMALL_COPY = 8192  # bytes: a block of 4 tokens of Llama-3-8B in layer_split
SPREAD = 16  # sizes that must lie between the smallest and the largest copies of a series


def at_most_everywhere(
    limit: float, factor: float = 1.0, paper: bool = False
) -> Callable[[Claim, pd.DataFrame], list[Verdict]]:
    """Judge "recompute x factor / swap never above `limit`" on published prefills against large copies, and served.

    Large copies are where the ratio is largest. With `paper`, its model and length are judged apart.
    """
    scaled = "" if factor == 1 else f", recompute x {factor}"

    def judge(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
        kernels = [pair.times(factor) for pair in record.large_copy_pairs(published)]
        served = [pair.times(factor) for pair in record.served_pairs(published)]
        own = [pair for pair in kernels if paper and pair.is_of(PAPER_CASE["model"], PAPER_CASE["seq_len"])]
        others = [pair for pair in kernels if pair not in own]
        groups = [(group, "large copies") for pairs in (own, others) for group in record.by_link(pairs)]
        groups += [(group, "served, swap out taken as long as in") for group in record.by_link(served)]
        return [
            record.judge_pairs(claim, group, [p.ratio <= limit for p in group], words + scaled, record.largest)
            for group, words in groups
        ]

    return judge


def by_blocks(
    sizes: tuple[int, ...], low: float, high: float, pick: Callable[[record.Pair], float]
) -> Callable[[Claim, pd.DataFrame], list[Verdict]]:
    """Judge "recompute / swap within low..high at these block sizes" on published prefills and a copy loop."""

    def judge(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
        found = []
        for model, tokens in PAIR_CASES:
            pairs = list(record.block_pairs(published, model, tokens, sizes).values())
            words = f"layer_split, one memcpy a fragment, blocks of {', '.join(str(p.block_size) for p in pairs)}"
            outcomes = [low <= pair.ratio <= high for pair in pairs]
            found.append(record.judge_pairs(claim, pairs, outcomes, words, pick))
        return found

    return judge


def rates_by_method(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
    """Share of the largest copies' rate that the smallest reach, by copy method and direction."""
    found = []
    for series in pub.copy_series(published):
        sizes, rates = series.fragment_bytes, series.bytes_s
        if sizes.min() > SMALL_COPY or sizes.max() < SPREAD * sizes.min():
            continue
        best = float(rates[sizes == sizes.max()].max())
        share = float(rates[sizes == sizes.min()].max()) / best
        half = next(size for size, rate in zip(sizes, rates, strict=True) if rate >= best / 2)
        because = (
            f"{series.method}, {series.direction}: {sizes.min() / 1024:g} KiB copies reach {share:.1%} of the rate of "
            f"{sizes.max() / 1024:g} KiB ones, and half of it from {half / 1024:g} KiB on."
        )
        found.append(
            claim.says(
                Answer.CONFIRMED if share <= COLLAPSE else Answer.REFUTED,
                because,
                found=share,
                origin=f"published ({record.short(series.source)})",
                machine=series.hardware,
                where=f"{series.method}, {series.direction}",
            )
        )
    return found
