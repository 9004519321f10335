"""Cases: the points of a sweep, in the order in which they are run."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

from bench.sweep import Axes, SweepError
from kernels import shapes
from kernels.copy_plan import Direction
from kernels.paged_kv import Geometry
from kernels.shapes import Layout, ModelShape

DIRECTIONS: tuple[Direction, ...] = ("swap_out", "swap_in")
CEILING = "contiguous"


@dataclass(frozen=True)
class Case:
    """One point of a sweep; what does not apply is None. Result files are joined on these fields."""

    recovery: Literal["swap", "recompute"]
    direction: Direction | None
    method: str | None
    layout: Layout | None
    placement: str | None
    model: str
    dtype: str
    layers_timed: int
    layers_model: int
    block_size: int | None
    seq_len: int
    batch: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values for the result row."""
        return asdict(self)

    @property
    def id(self) -> str:
        """A name for the terminal and for `-k`: every field that applies."""
        layers = "" if self.layers_timed == self.layers_model else f"{self.layers_timed}layers"
        block = f"b{self.block_size}" if self.block_size else ""
        parts = (
            self.direction or self.recovery,
            self.method,
            self.layout,
            self.placement,
            block,
            f"s{self.seq_len}",
            f"x{self.batch}" if self.batch > 1 else "",
            self.model,
            self.dtype,
            layers,
        )
        return "/".join(part for part in parts if part)

    @property
    def is_ceiling(self) -> bool:
        """One contiguous copy, which the other copies of its length and direction are held against."""
        return self.method == CEILING

    @property
    def shape(self) -> ModelShape:
        """The model with the layers that are timed."""
        return shapes.find(self.model).with_layers(self.layers_timed)

    @property
    def geometry(self) -> Geometry:
        """How the case's blocks lie in memory.

        A ceiling is all blocks side by side. A prefill writes blocks of 16 tokens by layer, vLLM's default; its time
        does not depend on them.
        """
        layout = self.layout or ("layer_split" if self.recovery == "recompute" else "cross_layer")
        return Geometry(self.shape, self.dtype, layout, self.block_size or min(16, self.seq_len))

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return self.seq_len * self.batch


def swaps(axes: Axes) -> list[Case]:
    """Swap out and swap in over models, lengths, layouts, placements, block sizes and methods, with their ceilings."""
    cases = []
    for model, seq_len, direction, method in product(axes.model, axes.seq_lens, DIRECTIONS, axes.methods):
        blocks: Iterable[tuple[Any, ...]] = product(axes.layouts, axes.placements, axes.block_sizes)
        for layout, placement, block_size in [(None, None, None)] if method == CEILING else blocks:
            case = _case(axes, model, seq_len, recovery="swap", direction=direction, method=method)
            cases.append(Case(**case, layout=layout, placement=placement, block_size=block_size))
    return cases


def recomputes(axes: Axes) -> list[Case]:
    """Recompute over models and lengths."""
    return [
        Case(
            **_case(axes, model, seq_len, recovery="recompute", direction=None, method=None),
            layout=None,
            placement=None,
            block_size=None,
        )
        for model, seq_len in product(axes.model, axes.seq_lens)
    ]


def _case(axes: Axes, model: str, seq_len: int, **fields: Any) -> dict[str, Any]:
    shape = shapes.find(model)
    try:
        timed = shape.with_layers(axes.layers).layers
    except ValueError as error:
        raise SweepError(str(error)) from error
    sizes = {"layers_timed": timed, "layers_model": shape.layers, "seq_len": seq_len, "batch": axes.batch}
    return fields | sizes | {"model": model, "dtype": axes.dtype}


def in_order(cases: Sequence[Case], seed: int) -> list[Case]:
    """Model by model (weights are made once); ceilings first, then everything else in an order drawn from `seed`.

    Drift of clocks and temperature then falls on swap and recompute alike instead of on whatever ran last.
    """
    shuffled = list(cases)
    random.Random(seed).shuffle(shuffled)
    models = list(dict.fromkeys(case.model for case in cases))
    return sorted(shuffled, key=lambda case: (models.index(case.model), not case.is_ceiling))
