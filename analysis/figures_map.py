"""Who wins, and by how much, over length and block size: a map a way of swapping."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from analysis.cost_model import BadFit
from analysis.drawing import legend_below, log2_axis, new_figure, title, watermark
from analysis.intervals import CONFIDENCE
from analysis.setting import Setting

Floats = NDArray[np.float64]
LENGTHS = (256, 32768)
BLOCK_SIZES = (1, 256)
STEPS = 4  # points a doubling
LEVELS = (-4, -3, -2, -1, 1, 2, 3, 4)  # log2 of recompute / swap
LIMIT = 4
INCHES = (5.4, 4.6)
COLOURS = "PuOr"
BAND = Patch(facecolor="none", edgecolor="0.15", hatch="////", lw=0, label="95 % band of the tie")
BEYOND = Patch(
    facecolor="none", edgecolor="0.45", hatch="..", lw=0, label="beyond the lengths or copy sizes of the data"
)


class Map(NamedTuple):
    """log2(recompute / swap) over `block_sizes` (rows) and `lengths`; its 95 % ends, None without resamples."""

    lengths: Floats
    block_sizes: Floats
    ratio: Floats
    low: Floats | None
    high: Floats | None
    beyond: NDArray[np.bool_]


def draw_crossover_map(
    setting: Setting | Mapping[str, Setting],
    hardware: str = "",
    *,
    lengths: tuple[int, int] = LENGTHS,
    block_sizes: tuple[int, int] = BLOCK_SIZES,
    preemptions: int = 1,
    keep: bool = False,
    backend: str = "cuda",
) -> Figure:
    """Recompute / swap over length and block size, with the tie and the band of its resamples.

    Parameters
    ----------
    setting : Setting, or a mapping of label to Setting
        A panel each; the labels say what differs, e.g. "memcpy_loop, cross_layer". Layout and trip are added.
    hardware : str
        For the titles.
    lengths, block_sizes : (int, int)
        Ends of the axes, in tokens.
    preemptions, keep : int, bool
        As `Setting.swap` has them.
    backend : str
        "cpu" marks every panel.
    """
    named = {"": setting} if isinstance(setting, Setting) else dict(setting)
    columns = 2 if len(named) == 4 else min(3, len(named))
    figure, axes = new_figure(len(named), columns, INCHES)
    norm = Normalize(-LIMIT, LIMIT)
    for ax, (label, one) in zip(axes, named.items(), strict=True):
        title(ax, _title(one, label, hardware, preemptions), 60)
        try:
            _draw_map(ax, crossover_map(one, lengths, block_sizes, preemptions, keep), norm)
        except BadFit as error:
            _refuse(ax, str(error))
        log2_axis(ax, lengths, "Length (tokens)", ticks=6)
        log2_axis(ax, block_sizes, "Block size (tokens)", axis="y")
        ax.set_xlim(*lengths)
        ax.set_ylim(*block_sizes)
        if backend == "cpu":
            watermark(ax)
    _colour_bar(figure, axes, norm)
    tie = Line2D([], [], color="black", lw=2.4, label="tie")
    legend_below(figure, [tie, BAND, BEYOND])
    return figure


def crossover_map(
    setting: Setting, lengths: tuple[int, int], block_sizes: tuple[int, int], preemptions: int = 1, keep: bool = False
) -> Map:
    """The numbers behind one panel. BadFit if a fit is refused."""
    x, y = _doublings(lengths), _doublings(block_sizes)
    ratio, beyond = np.empty((len(y), len(x))), np.zeros((len(y), len(x)), dtype=bool)
    draws: list[Floats] = []
    for column, tokens in enumerate(x):
        recompute = setting.recompute(float(tokens), preemptions)
        for row, block_size in enumerate(y):
            swap = setting.swap(float(tokens), float(block_size), preemptions, keep)
            ratio[row, column] = np.log2(recompute.value / swap.value)
            beyond[row, column] = bool(setting.beyond_data(float(tokens), float(block_size)))
            if recompute.draws is not None or swap.draws is not None:
                above = recompute.value if recompute.draws is None else recompute.draws
                below = swap.value if swap.draws is None else swap.draws
                draws.append(np.quantile(np.log2(above / below), ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)))
    if len(draws) < ratio.size:
        return Map(x, y, ratio, None, None, beyond)
    ends = np.array(draws).reshape(len(x), len(y), 2)
    return Map(x, y, ratio, ends[:, :, 0].T, ends[:, :, 1].T, beyond)


def _doublings(ends: tuple[int, int]) -> Floats:
    count = max(2, round(STEPS * np.log2(ends[1] / ends[0])) + 1)
    return np.asarray(np.geomspace(*ends, count), dtype=float)


def _draw_map(ax: Axes, values: Map, norm: Normalize) -> None:
    place = values.lengths, values.block_sizes
    shown = np.clip(values.ratio, -LIMIT, LIMIT)
    ax.grid(False)
    ax.contourf(*place, shown, levels=np.linspace(-LIMIT, LIMIT, 17), cmap=COLOURS, norm=norm, alpha=0.85)
    if values.beyond.any():
        _hatch(ax, values, values.beyond.astype(float) - 0.5, "..", "0.45")
    if values.low is not None and values.high is not None:
        _hatch(ax, values, np.minimum(values.high, -values.low), "////", "0.15")
    levels = [level for level in LEVELS if values.ratio.min() < level < values.ratio.max()]
    if levels:
        lines = ["dashed" if level < 0 else "solid" for level in levels]
        contours = ax.contour(*place, values.ratio, levels=levels, colors="0.25", linewidths=0.9, linestyles=lines)
        _label(ax, values, levels, contours)
    ax.contour(*place, values.ratio, levels=[0], colors="black", linewidths=2.4)
    if (values.ratio > 0).all() or (values.ratio < 0).all():
        faster = "swap" if values.ratio.min() > 0 else "recompute"
        ax.text(0.5, 0.96, f"{faster} faster everywhere", transform=ax.transAxes, ha="center", va="top", **_BOX)


def _hatch(ax: Axes, values: Map, inside: Floats, hatch: str, colour: str) -> None:
    """Hatch where `inside` is positive."""
    if not (inside > 0).any():
        return
    with mpl.rc_context({"hatch.color": colour, "hatch.linewidth": 0.6}):
        drawn = ax.contourf(
            values.lengths, values.block_sizes, inside, levels=[0, np.inf], colors="none", hatches=[hatch]
        )
        drawn.set_edgecolor(colour)
        drawn.set_linewidth(0)


_BOX: dict[str, Any] = {
    "fontsize": 8,
    "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "boxstyle": "round,pad=0.15"},
}


def _label(ax: Axes, values: Map, levels: Sequence[float], contours: ContourSet) -> None:
    """A label on each line, as far inside and as far from the others as it goes; the words say who wins."""
    placed: list[Floats] = []
    for level, path in zip(levels, contours.get_paths(), strict=True):
        vertices = np.asarray(path.vertices, dtype=float)
        at = np.column_stack([_fraction(vertices[:, 0], values.lengths), _fraction(vertices[:, 1], values.block_sizes)])
        inside = np.minimum(np.minimum(at, 1 - at) * (1.0, 2.0), 0.3).min(axis=1)
        for other in placed:
            apart = np.abs(at - other)
            inside[(apart[:, 0] < 0.3) & (apart[:, 1] < 0.07)] = 0
        best = int(inside.argmax())
        if inside[best] < 0.003:
            continue
        placed.append(at[best])
        side = "left" if at[best, 0] < 0.15 else "right" if at[best, 0] > 0.85 else "center"
        ax.text(vertices[best, 0], vertices[best, 1], ratio_text(level), ha=side, va="center", zorder=5, **_BOX)


def _fraction(values: Floats, ends: Floats) -> Floats:
    """Places on a logarithmic axis, 0 to 1."""
    return np.asarray(np.log(values / ends[0]) / np.log(ends[-1] / ends[0]), dtype=float)


def ratio_text(level: float) -> str:
    """`swap 2x` where recompute / swap is 2."""
    if level == 0:
        return "tie"
    return f"{'swap' if level > 0 else 'recompute'} {2 ** abs(level):g}x"


def _refuse(ax: Axes, why: str) -> None:
    text = textwrap.fill(f"no map: {why}", 44)
    ax.text(0.5, 0.85, text, transform=ax.transAxes, ha="center", va="center", **_BOX)


def _title(setting: Setting, label: str, hardware: str, preemptions: int) -> Sequence[str]:
    origins = {"recompute": setting.prefill.origin, "swap": setting.swap_in.origin}
    times = f", {preemptions} preemptions" if preemptions > 1 else ""
    layout = setting.layout or "contiguous"
    how = ", ".join(part for part in (label, layout if layout not in label else "", setting.trip) if part)
    return (
        hardware,
        f"{setting.shape.name}, {setting.dtype}{times}",
        how,
        ", ".join(f"{name} fitted to {origin} rows" for name, origin in origins.items())
        if len(set(origins.values())) > 1
        else f"both fitted to {setting.prefill.origin} rows",
    )


def _colour_bar(figure: Figure, axes: Sequence[Axes], norm: Normalize) -> None:
    mappable = mpl.cm.ScalarMappable(norm, COLOURS)
    ticks = range(-LIMIT, LIMIT + 1)
    bar = figure.colorbar(mappable, ax=list(axes), ticks=list(ticks), shrink=0.9, pad=0.02)
    bar.ax.set_yticklabels([ratio_text(tick) for tick in ticks], fontsize=8)
    bar.set_label("Who is faster, and how many times", fontsize=8)
