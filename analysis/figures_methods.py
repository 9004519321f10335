"""Which copy method is the fastest, by bytes of a fragment and number of fragments: a heat map from the copy bench."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.contract import NothingToDraw
from analysis.drawing import PALETTE, bytes_text, legend_below, new_figure, title, watermark, without_cpu

CEILING = "contiguous"
LETTERS = {
    "torch_copy": "T",
    "memcpy_loop": "L",
    "memcpy_batch": "B",
    "memcpy_batch_overlap": "O",
    "gather_copy": "G",
    "direct_kernel": "D",
}
CELL_INCHES = (0.75, 0.5)
PALE = 0.55  # of the way to white, so that black letters read on every colour


def best_methods(frame: pd.DataFrame, with_cpu: bool = False) -> pd.DataFrame:
    """The fastest method of each point of the copy grid.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `analysis.load.load`; rows of the copy bench whose bytes were verified count, several sessions by their
        median.
    with_cpu : bool
        Keep CPU rows beside GPU ones.

    Returns
    -------
    pandas.DataFrame
        machine, backend, direction, placement, fragment_bytes, fragments, method, gbps, share (of the ceiling; NaN
        where there is none).

    Raises
    ------
    NothingToDraw
        If no method but the ceiling was timed.
    """
    rows = frame[(frame["recovery"] == "copy") & frame["verified"].astype(bool) & (frame["method"] != CEILING)]
    if rows.empty:
        raise NothingToDraw("no rows of the copy bench: run pytest bench/bench_copy.py")
    rows = without_cpu(rows, with_cpu)
    rates = rows["bytes"].astype(float) / rows["wall_median_s"] / 1e9
    rows = rows.assign(gbps=rates, share=rates / rows["ceiling_gbps"])
    point = ["machine", "backend", "direction", "placement", "fragment_bytes", "fragments"]
    medians = rows.groupby([*point, "method"], as_index=False)[["gbps", "share"]].median()
    best = medians.loc[medians.groupby(point)["gbps"].idxmax()]
    return best.reset_index(drop=True)


def draw_best_methods(frame: pd.DataFrame, with_cpu: bool = False) -> Figure:
    """A panel a machine, placement and direction; in each cell the method's letter and its percent of the ceiling."""
    best = best_methods(frame, with_cpu)
    methods = [method for method in LETTERS if method in set(best["method"])]
    panels = list(best.groupby(["machine", "placement", "direction"], sort=False))
    columns = min(len(panels), 3)
    cells = [(part["fragment_bytes"].nunique(), part["fragments"].nunique()) for _, part in panels]
    inches = (
        max(4.6, CELL_INCHES[0] * max(across for across, _ in cells) + 1.2),
        max(2.6, CELL_INCHES[1] * max(down for _, down in cells) + 1.6),
    )
    figure, axes = new_figure(len(panels), columns, inches)
    for ax, (key, part) in zip(axes, panels, strict=True):
        _draw_panel(ax, tuple(map(str, key)), part, methods)
    legend_below(figure, [_patch(method, methods) for method in methods], 3)
    return figure


def _draw_panel(ax: Axes, key: tuple[str, ...], part: pd.DataFrame, methods: list[str]) -> None:
    machine, placement, direction = key
    codes = part.assign(code=part["method"].map(methods.index), text=part.apply(_text, axis=1))
    grid = codes.pivot(index="fragments", columns="fragment_bytes", values="code").sort_index(ascending=False)
    texts = codes.pivot(index="fragments", columns="fragment_bytes", values="text").reindex_like(grid).fillna("")
    options: dict[str, Any] = {"cbar": False, "linewidths": 0.5, "vmin": -0.5, "vmax": len(methods) - 0.5}
    colours = ListedColormap([_pale(method, methods) for method in methods])
    sns.heatmap(grid, annot=texts, fmt="", cmap=colours, annot_kws={"size": 8, "color": "black"}, ax=ax, **options)
    ax.set_xticks(
        [index + 0.5 for index in range(grid.shape[1])], [bytes_text(float(size)) for size in grid.columns], rotation=60
    )
    ax.set_yticks(
        [index + 0.5 for index in range(grid.shape[0])], [f"{count:,.0f}" for count in grid.index], rotation=0
    )
    ax.set_xlabel("Fragment")
    ax.set_ylabel("Fragments")
    title(ax, [machine, f"{direction}, {placement} (measured)"], 52)
    if set(part["backend"]) == {"cpu"}:
        watermark(ax)


def _text(row: pd.Series) -> str:
    letter = LETTERS[str(row["method"])]
    return letter if pd.isna(row["share"]) else f"{letter} {row['share']:.0%}"


def _pale(method: str, methods: list[str]) -> tuple[float, float, float]:
    red, green, blue = (part + (1 - part) * PALE for part in PALETTE[methods.index(method)])
    return red, green, blue


def _patch(method: str, methods: list[str]) -> Patch:
    return Patch(
        facecolor=_pale(method, methods), edgecolor="0.4", label=f"{LETTERS[method]}: {method}, % of the ceiling"
    )
