"""On what a machine's swap and recompute are compared: fitted constants where the fits hold, else the medians measured.

A file of few lengths (the quick sweep times three) gives no fit of a prefill; what ties is then read off between the
medians, and nothing is said beyond them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from analysis.cost_model import CopyFit, CopyKey, PrefillFit, PrefillKey, fit_copies, fit_prefill
from analysis.figure19 import Panel, Point, Selection, panels
from analysis.intervals import Estimate
from analysis.published import find_shape
from analysis.published_hosts import DIRECTIONS
from analysis.setting import Setting
from kernels.shapes import LAYOUTS, Layout, ModelShape

USUAL_BLOCKS = (1, 16, 32, 256)
MOST = 4  # block sizes shown where none of the usual was measured
DRAWS = 200  # of the bootstrap of a median: crossings are searched in each
TRIPS = ("round-trip", "load-only")


@dataclass(frozen=True, eq=False)
class Basis:
    """One machine, model and way of swapping.

    Attributes
    ----------
    machine, hardware, backend, origin, source : str
        `source` only of published constants.
    setting : Setting or None
        Fitted constants, round trip; None where a fit is refused, or there was none.
    refusal : str
        Why there are none; empty where there are.
    panels : tuple of Panel
        What was measured, lengths ascending; empty where published.
    lengths, block_sizes : tuple of int
        What to ask.
    """

    machine: str
    hardware: str
    backend: str
    model: str
    dtype: str
    batch: int
    method: str
    layout: str
    placement: str
    origin: str
    source: str
    shape: ModelShape | None
    setting: Setting | None
    refusal: str
    panels: tuple[Panel, ...]
    lengths: tuple[int, ...]
    block_sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """The hardware, after the user's label if there is one."""
        return self.hardware if self.machine == self.hardware else f"{self.machine}: {self.hardware}"

    @property
    def what(self) -> str:
        """Model and way of swapping."""
        batch = f" x {self.batch}" if self.batch > 1 else ""
        return f"{self.model}, {self.dtype}{batch}; {self.way} ({self.origin})"

    @property
    def way(self) -> str:
        """Copy method, layout and placement."""
        return ", ".join(filter(None, (self.method, self.layout, self.placement)))

    @property
    def kind(self) -> str:
        """What answers rest on: "fit" or "medians"."""
        return "medians" if self.setting is None else "fit"

    def on_trip(self, trip: str) -> Setting | None:
        """The constants of one of `TRIPS`."""
        if self.setting is None or trip == "round-trip":
            return self.setting
        return replace(self.setting, swap_out=None)

    def point(self, tokens: int, block_size: int) -> Point | None:
        """What was measured there."""
        panel = next((panel for panel in self.panels if panel.seq_len == tokens), None)
        points = panel.points if panel else ()
        return next((point for point in points if point.block_size == block_size), None)

    def measured(self, tokens: int, block_size: int, trip: str) -> tuple[Estimate, Estimate] | None:
        """(swap, recompute) in seconds as measured; None where either is missing."""
        point = self.point(tokens, block_size)
        swap = None if point is None else point.swap_in if trip == "load-only" else point.swap_in_out
        return None if point is None or swap is None else (thin(swap), thin(point.recompute))


def thin(estimate: Estimate) -> Estimate:
    """With `DRAWS` of its draws."""
    return estimate if estimate.draws is None else Estimate(estimate.value, estimate.draws[:DRAWS])


def measured_bases(
    frame: pd.DataFrame, selection: Selection, block_sizes: tuple[int, ...] = ()
) -> tuple[list[Basis], list[str]]:
    """Every pair of swap and recompute in a frame of `analysis.load.load`, and notes on what was left out.

    Raises
    ------
    NothingToDraw
        If there is no pair, or none of what was named.
    """
    found, notes = panels(frame, replace(selection, seq_lens=()))
    return bases_of(found, frame, selection.seq_lens, block_sizes), notes


def bases_of(
    found: list[Panel], frame: pd.DataFrame, lengths: tuple[int, ...] = (), block_sizes: tuple[int, ...] = ()
) -> list[Basis]:
    """The panels of a frame by machine, model and way of swapping, with the constants fitted to the frame."""
    copies, prefills = fit_copies(frame), fit_prefill(frame)
    groups: dict[tuple[str, ...], list[Panel]] = {}
    for panel in found:
        key = (panel.machine, panel.model, panel.dtype, str(panel.batch), panel.method, panel.layout, panel.placement)
        groups.setdefault(key, []).append(panel)
    return [_measured(group, copies, prefills, lengths, block_sizes) for group in groups.values()]


def _measured(
    group: list[Panel],
    copies: dict[CopyKey, CopyFit],
    prefills: dict[PrefillKey, PrefillFit],
    lengths: tuple[int, ...],
    block_sizes: tuple[int, ...],
) -> Basis:
    group = sorted(group, key=lambda panel: panel.seq_len)
    first = group[0]
    prefill = prefills.get(PrefillKey(first.machine, first.model, first.dtype, first.batch))
    ways = {
        way: copies.get(CopyKey(first.machine, first.method, first.layout, first.placement, way)) for way in DIRECTIONS
    }
    shape = known_shape(first.model)
    layout = as_layout(first.layout)
    refusal = _refusal({"prefill": prefill, **ways}, first, shape)
    setting = None
    if not refusal and shape and prefill and ways["swap_in"]:
        setting = Setting(shape, first.dtype, layout, prefill, ways["swap_in"], ways["swap_out"])
    seen = sorted({size for panel in group for size, _ in panel.pairs})
    return Basis(
        **{name: getattr(first, name) for name in ("machine", "hardware", "backend", "model", "dtype", "batch")},
        **{name: getattr(first, name) for name in ("method", "layout", "placement", "origin")},
        source="",
        shape=shape,
        setting=setting,
        refusal=refusal,
        panels=tuple(group),
        lengths=lengths or tuple(panel.seq_len for panel in group),
        block_sizes=block_sizes or _usual(seen),
    )


def _usual(seen: list[int]) -> tuple[int, ...]:
    return tuple(size for size in USUAL_BLOCKS if size in seen) or tuple(seen[:MOST])


def _refusal(fits: dict[str, CopyFit | PrefillFit | None], panel: Panel, shape: ModelShape | None) -> str:
    """Why there is no setting; empty if there is one."""
    if shape is None:
        return f"{panel.model} is no known shape"
    if panel.batch > 1:
        return f"batches of {panel.batch}: constants are of one sequence"
    for name, fit in fits.items():
        if fit is None or fit.refusal:
            return f"{name.replace('_', ' ')}: {'no rows' if fit is None else fit.refusal}"
    return ""


def known_shape(model: str) -> ModelShape | None:
    """The shape of a model's name, shards included; None if there is none of that name."""
    try:
        return find_shape(model)
    except ValueError:
        return None


def as_layout(name: str) -> Layout:
    """The layout of that name."""
    return next(layout for layout in LAYOUTS if layout == name)
