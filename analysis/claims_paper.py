"""What section 7.3 of the PagedAttention paper says of swapping and recomputing, one entry each.

Kwon et al., SOSP 2023, measured OPT-13B, FP16, one sequence of 256 tokens, on an A100-40GB (their artifact,
sosp-ae-astra). That case is judged apart from all others. What the article adds is in `claims_article`.
"""

from __future__ import annotations

import numpy as np

from analysis import claims_blocks as blocks
from analysis import claims_prefill as prefill
from analysis import claims_record as record
from analysis.claim_types import Claim, Need
from analysis.claims_published import farthest, largest, smallest
from analysis.paper import AUTHORS_FACTOR

PAPER = "Kwon et al., SOSP 2023, section 7.3"
RATIO = "recompute / swap in+out"
PANELS = (
    Need("sweep figure19", "swap", {"direction": ("swap_in", "swap_out")}, note="every block size"),
    Need("sweep figure19", "recompute"),
)


def _twenty_percent(name: str, limit: float, words: str, source: str, factor: float) -> Claim:
    scaled = factor != 1
    return Claim(
        id=f"at-most-20-percent-{name.lower()}" + (f"-x{factor}" if scaled else ""),
        words=words + (f", recompute x {factor} as in the authors' plot script" if scaled else ""),
        source=source,
        claimed=f"<= {limit}",
        unit=RATIO,
        test="the largest ratio over block sizes",
        needs=PANELS,
        on_record=record.at_most_everywhere(limit, factor, paper=True),
        on_machine=blocks.on_panels(blocks.twenty_percent(name, factor), paper=True),
    )


READING_A = 'recompute is "never higher than 20% of swapping\'s latency", as written'
READING_B = "recompute is at most 20 % slower than swap (the other reading, and the article's)"

PAPER_CLAIMS = (
    Claim(
        id="small-blocks-collapse-swap",
        words="small block sizes mean many small transfers, which limit the effective PCIe bandwidth",
        source=f"{PAPER}; article",
        claimed=f"<= {blocks.COLLAPSE}",
        unit="rate at small / at large",
        test="rate of the smallest copies over that of the largest, by copy method",
        needs=PANELS,
        on_record=record.rates_by_method,
        on_machine=blocks.on_panels(blocks.collapses, paper=True),
    ),
    Claim(
        id="recompute-flat-over-blocks",
        words="the overhead of recomputation is constant across block sizes",
        source=PAPER,
        claimed=f"<= {1 + prefill.SAME}",
        unit="largest / smallest",
        test="recompute timed into pools of several block sizes",
        needs=(Need("a sweep of recompute over block sizes, not in the suite yet", "recompute", {}, ("block_size",)),),
        on_machine=prefill.recompute_over_blocks,
    ),
    Claim(
        id="recompute-wins-at-small-blocks",
        words="recompute is more efficient at small block sizes, by a wide margin",
        source=f"{PAPER}; article",
        claimed=f"<= {blocks.WIDE_MARGIN}",
        unit=RATIO,
        test="the ratio at 1 or 2 tokens a block",
        needs=(Need("sweep figure19", "swap", {"block_size": blocks.SMALL}), PANELS[1]),
        on_record=record.by_blocks((2,), 0, blocks.WIDE_MARGIN, largest),
        on_machine=blocks.on_panels(blocks.wins_at_small, paper=True),
    ),
    Claim(
        id="swap-wins-at-large-blocks",
        words="swapping is more efficient at large block sizes",
        source=PAPER,
        claimed="> 1",
        unit=RATIO,
        test="the ratio at the largest block size, 128 tokens or more",
        needs=PANELS,
        on_record=record.by_blocks((256,), 1, np.inf, smallest),
        on_machine=blocks.on_panels(blocks.swap_wins_at_large, paper=True),
    ),
    Claim(
        id="comparable-at-16-to-64",
        words="block sizes from 16 to 64: comparable (judged on the overheads, not end to end)",
        source=PAPER,
        claimed=f"{blocks.COMPARABLE[0]} to {blocks.COMPARABLE[1]}",
        unit=RATIO,
        test="the ratio at 16, 32 and 64 tokens a block; end to end would need a serving replay",
        needs=(Need("sweep figure19", "swap", {"block_size": (16, 32, 64)}), PANELS[1]),
        on_record=record.by_blocks((16, 32, 64), *blocks.COMPARABLE, farthest),
        on_machine=blocks.on_panels(blocks.comparable_at_medium, paper=True),
    ),
    *(_twenty_percent("A", 0.2, READING_A, PAPER, factor) for factor in (1.0, AUTHORS_FACTOR)),
    *(_twenty_percent("B", 1.2, READING_B, f"{PAPER}; article", factor) for factor in (1.0, AUTHORS_FACTOR)),
)
