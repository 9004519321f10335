"""Figure 19 (a) from published rows alone: an A100 on a slow and on a fast host, an H100 and an H200.

Nothing here was measured by this project. Every point says whether it is published or modelled, and every panel names
its sources.
"""

from __future__ import annotations

import pandas as pd

from analysis.figure19 import Panel, Point
from analysis.intervals import Estimate
from analysis.published_hosts import DIRECTIONS, MODELLED, PUBLISHED, Cost, Host, hosts
from kernels.shapes import Layout, find

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# The paper's own case (its artifact: 256 tokens), and a model with grouped-query attention.
CASES = (("opt-13b", 256), ("llama-3-8b", 256), ("llama-3-8b", 1024), ("llama-3-8b", 4096))
LAYOUT: Layout = "layer_split"


def published_panels(
    published: pd.DataFrame, cases: tuple[tuple[str, int], ...] = CASES, layout: Layout = LAYOUT
) -> list[Panel]:
    """A panel for each case (model, tokens) and machine, cases first; `figures.draw_figure19` draws them.

    Parameters
    ----------
    published : pandas.DataFrame
        Of `analysis.published.load_published`.
    layout : str
        "layer_split" as in the paper (one memcpy a layer, K or V, and block), or another of `kernels.shapes`.
    """
    machines = hosts(published)
    return [_panel(host, model, tokens, layout) for model, tokens in cases for host in machines]


def _panel(host: Host, model: str, tokens: int, layout: Layout) -> Panel:
    recompute = host.recompute(model, find(model), tokens)
    swaps = [{way: host.swap(find(model), tokens, size, layout, way) for way in DIRECTIONS} for size in BLOCK_SIZES]
    points = tuple(_point(size, recompute, costs) for size, costs in zip(BLOCK_SIZES, swaps, strict=True))
    origins = {origin for point in points for origin in point.origins.values()}
    return Panel(
        machine=host.site.title,
        hardware=host.site.title,
        backend="cuda",
        model=model,
        dtype="16 bit",
        seq_len=tokens,
        batch=1,
        origin=", ".join(sorted(origins, reverse=True)),
        layout=layout,
        method="memcpy_loop",
        placement="scattered",
        points=points,
        scaled={},
        suspect={},
        notes=(
            f"recompute {recompute.origin}: {recompute.source}",
            f"swap {_both(swaps)}: {swaps[0]['swap_in'].source}",
            host.link_text,
        ),
    )


def _point(block_size: int, recompute: Cost, swaps: dict[str, Cost]) -> Point:
    origins = {"recompute": recompute.origin, **{way: cost.origin for way, cost in swaps.items()}}
    kinds = {cost.origin for cost in swaps.values()}
    origins["swap_in_out"] = MODELLED if MODELLED in kinds else PUBLISHED
    swap_in, swap_out = (Estimate(swaps[way].seconds) for way in DIRECTIONS)
    return Point(block_size, Estimate(recompute.seconds), swap_in, swap_out, origins=origins)


def _both(swaps: list[dict[str, Cost]]) -> str:
    return " and ".join(sorted({cost.origin for costs in swaps for cost in costs.values()}, reverse=True))
