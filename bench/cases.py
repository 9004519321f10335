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
BOTH: Literal["both"] = "both"
CEILING = "contiguous"
OPTIONS = ("programs", "staging_bytes")  # of copy methods; which method has which, `METHOD_OPTIONS` says
METHOD_OPTIONS = {"direct_kernel": "programs", "gather_copy": "staging_bytes"}


@dataclass(frozen=True)
class Case:
    """One point of a sweep; what does not apply is None. Result files are joined on these fields."""

    recovery: Literal["swap", "recompute", "copy"]
    direction: Direction | Literal["both"] | None
    method: str | None
    layout: Layout | None
    placement: str | None
    model: str | None
    dtype: str | None
    layers_timed: int | None
    layers_model: int | None
    block_size: int | None
    seq_len: int | None
    batch: int | None
    fragment_bytes: int | None = None
    fragments: int | None = None
    repeat: int | None = None
    programs: int | None = None
    staging_bytes: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for the result row."""
        return asdict(self)

    @property
    def id(self) -> str:
        """A name for the terminal and for `-k`: every field that applies."""
        layers = f"{self.layers_timed}layers" if self.is_partial else ""
        block = f"b{self.block_size}" if self.block_size else ""
        parts = (
            f"copy/{self.direction}" if self.recovery == "copy" else self.direction or self.recovery,
            self.method,
            self.layout,
            self.placement,
            block,
            f"s{self.seq_len}" if self.seq_len else "",
            f"x{self.batch}" if self.sequences > 1 else "",
            self.model,
            self.dtype,
            layers,
            f"{self.fragments}x{self.fragment_bytes}B" if self.fragments else "",
            f"p{self.programs}" if self.programs else "",
            f"staging{self.staging_bytes}" if self.staging_bytes else "",
            "again" if self.repeat else "",
        )
        return "/".join(part for part in parts if part)

    @property
    def is_ceiling(self) -> bool:
        """One contiguous copy, which the other copies of its length and direction are held against."""
        return self.method == CEILING

    @property
    def shape(self) -> ModelShape:
        """The model with the layers that are timed; for a copy, one whose block is a fragment."""
        if self.fragment_bytes:
            return ModelShape("fragment", 1, 1, 1, 1, self.fragment_bytes // 2, 1, 1)
        assert self.model is not None
        return shapes.find(self.model).with_layers(self.layers_timed or 0)

    @property
    def geometry(self) -> Geometry:
        """How the case's blocks lie in memory.

        A ceiling is all blocks side by side. A prefill writes blocks of 16 tokens by layer, vLLM's default; its time
        does not depend on them.
        """
        if self.fragment_bytes:
            return Geometry(self.shape, self.element, "cross_layer", 1)
        layout = self.layout or ("layer_split" if self.recovery == "recompute" else "cross_layer")
        return Geometry(self.shape, self.element, layout, self.block_size or min(16, self.length))

    @property
    def length(self) -> int:
        """Tokens of one sequence; for a copy, its fragments."""
        return self.seq_len or self.fragments or 0

    @property
    def tokens(self) -> int:
        """Tokens of all sequences; for a copy, its fragments."""
        return self.length * self.sequences

    @property
    def sequences(self) -> int:
        """Sequences in the batch."""
        return self.batch or 1

    @property
    def element(self) -> str:
        """Element type of K and V; a copy's fragments are bytes."""
        return self.dtype or "float8_e4m3fn"

    @property
    def is_partial(self) -> bool:
        """Not all layers of the model are timed."""
        return self.layers_timed != self.layers_model


def swaps(axes: Axes) -> list[Case]:
    """Swap out and swap in over models, lengths, layouts, placements, block sizes and methods, with their ceilings."""
    cases = []
    for model, seq_len, direction, method in product(axes.model, axes.seq_lens, DIRECTIONS, axes.methods):
        blocks: Iterable[tuple[Any, ...]] = product(_layouts(axes, model), axes.placements, axes.block_sizes)
        points = [(None, None, None)] if method == CEILING else blocks
        for (layout, placement, block_size), options in product(points, _options(axes, method)):
            case = _case(axes, model, seq_len, recovery="swap", direction=direction, method=method)
            cases.append(Case(**case, layout=layout, placement=placement, block_size=block_size, **options))
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


def copies(axes: Axes) -> list[Case]:
    """Fragment bytes x fragments x method x direction x placement, and the ceilings before and after all of them."""
    points = [
        (size, count) for size, count in product(axes.fragment_bytes, axes.fragments) if size * count <= axes.max_bytes
    ]
    cases = []
    for (size, count), direction, method in product(points, (*DIRECTIONS, BOTH), axes.methods):
        ceiling = method == CEILING
        placements, repeats = ([None], (None, 1)) if ceiling else (axes.placements, (None,))
        for placement, repeat, options in product(placements, repeats, _options(axes, method)):
            fields = dict.fromkeys(("layout", "model", "dtype", "layers_timed", "layers_model", "block_size"))
            at = {"fragment_bytes": size, "fragments": count, "placement": placement, "repeat": repeat} | options
            cases.append(
                Case(recovery="copy", direction=direction, method=method, seq_len=None, batch=None, **fields, **at)  # type: ignore[arg-type]
            )
    return cases


def _layouts(axes: Axes, model: str) -> list[Layout]:
    """The layouts of the axes; a model with one tensor a layer has no K and V to split, so its pieces are joined."""
    joined = shapes.find(model).one_tensor
    layouts: list[Layout] = ["layer_joined" if joined and it == "layer_split" else it for it in axes.layouts]
    return list(dict.fromkeys(layouts))


def _options(axes: Axes, method: str) -> list[dict[str, int]]:
    """The values of the method's own option; one empty choice where it has none."""
    option = METHOD_OPTIONS.get(method)
    return [{option: value} for value in getattr(axes, option)] if option else [{}]


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

    Ceilings that are measured again come last.

    Drift of clocks and temperature then falls on swap and recompute alike instead of on whatever ran last.
    """
    shuffled = list(cases)
    random.Random(seed).shuffle(shuffled)
    models = list(dict.fromkeys(case.model for case in cases))
    return sorted(shuffled, key=lambda case: (models.index(case.model), 2 if case.repeat else not case.is_ceiling))
