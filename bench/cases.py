"""Cases: the points of a sweep, in the order in which they are run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kernels import shapes
from kernels.copy_plan import Direction
from kernels.paged_kv import Geometry
from kernels.shapes import Layout, ModelShape

DIRECTIONS: tuple[Direction, ...] = ("swap_out", "swap_in")
BOTH: Literal["both"] = "both"
CEILING = "contiguous"
OPTIONS = ("programs", "staging_bytes")  # of copy methods; which method has which, `METHOD_OPTIONS` says
METHOD_OPTIONS = {"direct_kernel": "programs", "gather_copy": "staging_bytes"}
PREFILL_BLOCK = 16  # vLLM's default
RECOVERIES = (
    "swap",
    "recompute",
    "copy",
    "ridge",
    "batching",
    "preemptions",
    "hybrid",
    "interference",
    "resume",
)
PROBES = ("prefill", "gemm", "memory")
POLICIES = ("recompute", "swap", "swap_kept")
COMPANIES = ("prefill", "decode")


@dataclass(frozen=True)
class Case:
    """One point of a sweep; what does not apply is None. Result files are joined on these fields.

    Attributes
    ----------
    recovery : str
        One of `RECOVERIES`: the question, which is also the table of the sweep that the case comes from.
    seq_len : int or None
        Tokens of each sequence that is brought back; with preemptions, at the first of them.
    chunk_tokens : int or None
        recompute: new tokens a chunk has; None in one piece.
    cached_tokens : int or None
        recompute: tokens whose K and V are in the blocks already, in whole blocks; None for none.
    probe : str or None
        ridge: what is timed, one of `PROBES`.
    matrix : int or None
        ridge, gemm: rows and columns of both matrices.
    memory_bytes : int or None
        ridge, memory: bytes read, and as many written.
    policy : str or None
        How a sequence comes back, one of `POLICIES`; `swap_kept`: the host keeps its copy, only new blocks go out.
    company : str or None
        What runs beside or in the same step, one of `COMPANIES`; None for nothing.
    company_size : int or None
        Tokens of the prefill, or sequences of the decode step, that is the company.
    company_context : int or None
        Tokens that each decoding sequence of the company has cached.
    preemptions, growth_tokens : int or None
        How often the sequence is preempted, and by how many tokens it has grown each time after the first.
    fraction : float or None
        hybrid: part of the tokens that is computed, in whole blocks; the rest is swapped in.
    timed : str or None
        interference: whose clocks the row has, "company" or "swap".
    """

    recovery: str
    direction: Direction | Literal["both"] | None = None
    method: str | None = None
    layout: Layout | None = None
    placement: str | None = None
    model: str | None = None
    dtype: str | None = None
    layers_timed: int | None = None
    layers_model: int | None = None
    block_size: int | None = None
    seq_len: int | None = None
    batch: int | None = None
    fragment_bytes: int | None = None
    fragments: int | None = None
    repeat: int | None = None
    programs: int | None = None
    staging_bytes: int | None = None
    chunk_tokens: int | None = None
    cached_tokens: int | None = None
    probe: str | None = None
    matrix: int | None = None
    memory_bytes: int | None = None
    policy: str | None = None
    company: str | None = None
    company_size: int | None = None
    company_context: int | None = None
    preemptions: int | None = None
    growth_tokens: int | None = None
    fraction: float | None = None
    timed: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for the result row."""
        return asdict(self)

    @property
    def id(self) -> str:
        """A name for the terminal and for `-k`: every field that applies."""
        swapped = self.direction or self.recovery
        parts = (
            swapped if self.recovery == "swap" else self.recovery,
            *self.question,
            self.direction if self.recovery != "swap" else "",
            self.method,
            self.layout,
            self.placement,
            f"b{self.block_size}" if self.block_size else "",
            f"s{self.seq_len}" if self.seq_len else "",
            f"x{self.batch}" if self.sequences > 1 else "",
            self.model,
            self.dtype,
            f"{self.layers_timed}layers" if self.is_partial else "",
            f"{self.fragments}x{self.fragment_bytes}B" if self.fragments else "",
            f"p{self.programs}" if self.programs else "",
            f"staging{self.staging_bytes}" if self.staging_bytes else "",
            "again" if self.repeat else "",
        )
        return "/".join(part for part in parts if part)

    @property
    def question(self) -> tuple[str, ...]:
        """The fields of one bench file alone, in words."""
        context = f"@{self.company_context}" if self.company_context else ""
        parts = (
            self.probe,
            f"{self.matrix}x{self.matrix}" if self.matrix else None,
            f"{self.memory_bytes}B" if self.memory_bytes else None,
            self.policy,
            f"chunks{self.chunk_tokens}" if self.chunk_tokens else None,
            f"cached{self.cached_tokens}" if self.cached_tokens else None,
            f"{self.company}{self.company_size}{context}" if self.company else None,
            f"{self.preemptions}times+{self.growth_tokens}" if self.preemptions else None,
            f"f{self.fraction:g}" if self.fraction is not None else None,
            f"{self.timed}-timed" if self.timed else None,
        )
        return tuple(part for part in parts if part)

    @property
    def is_ceiling(self) -> bool:
        """One contiguous copy, which the other copies of its length and direction are held against."""
        return self.method == CEILING and self.recovery in ("swap", "copy")

    @property
    def computes(self) -> bool:
        """The model itself runs."""
        if self.recovery in ("swap", "copy"):
            return False
        return self.model is not None and (self.recovery != "preemptions" or self.policy == "recompute")

    @property
    def crosses_link(self) -> bool:
        """Blocks are held by the host too."""
        return self.method is not None

    @property
    def shape(self) -> ModelShape:
        """The model with the layers that are timed; for what has no model, one whose block is a fragment."""
        if self.model is None:
            return ModelShape("fragment", 1, 1, 1, 1, (self.fragment_bytes or 2) // 2, 1, 1)
        return shapes.find(self.model).with_layers(self.layers_timed or 0)

    @property
    def geometry(self) -> Geometry:
        """How the case's blocks lie in memory.

        A ceiling is all blocks side by side. A prefill writes blocks of 16 tokens by layer, vLLM's default; its time
        does not depend on them.
        """
        if self.fragment_bytes:
            return Geometry(self.shape, self.element, "cross_layer", 1)
        layout = self.layout or ("layer_split" if self.computes else "cross_layer")
        return Geometry(self.shape, self.element, layout, self.block_size or min(PREFILL_BLOCK, max(1, self.length)))

    @property
    def length(self) -> int:
        """Tokens of one sequence at its longest; for a copy, its fragments."""
        grown = ((self.preemptions or 1) - 1) * (self.growth_tokens or 0)
        return (self.seq_len or self.fragments or 0) + grown

    @property
    def tokens(self) -> int:
        """Tokens of all sequences that are brought back; for a copy, its fragments."""
        return self.length * self.sequences

    @property
    def company_lengths(self) -> list[int]:
        """Tokens of each sequence of the company, the new ones included."""
        size = self.company_size or 0
        if self.company == "decode":
            return [(self.company_context or 0) + 1] * size
        return [size] if size else []

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


def in_order(cases: Sequence[Case], seed: int) -> list[Case]:
    """Model by model (weights are made once); ceilings first, then everything else in an order drawn from `seed`.

    Ceilings that are measured again come last.

    Drift of clocks and temperature then falls on swap and recompute alike instead of on whatever ran last.
    """
    shuffled = list(cases)
    random.Random(seed).shuffle(shuffled)
    models = list(dict.fromkeys(case.model for case in cases))
    return sorted(shuffled, key=lambda case: (models.index(case.model), 2 if case.repeat else not case.is_ceiling))
