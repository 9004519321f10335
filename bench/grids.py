"""Which cases a table of a sweep stands for: one function a bench file, from its axes to its cases."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from bench.cases import BOTH, CEILING, DIRECTIONS, METHOD_OPTIONS, PREFILL_BLOCK, Case
from bench.sweep import Axes, SweepError
from kernels import shapes
from kernels.shapes import Layout


def swaps(axes: Axes) -> list[Case]:
    """Swap out and swap in over models, lengths, layouts, placements, block sizes and methods, with their ceilings."""
    found = []
    for direction in DIRECTIONS:
        found += _swapped(axes, recovery="swap", direction=direction)
        if CEILING in axes.methods:
            ceiling = {"recovery": "swap", "direction": direction, "method": CEILING}
            found += [_case(axes, model, seq_len, **ceiling) for model, seq_len in product(axes.model, axes.seq_lens)]
    return found


def recomputes(axes: Axes) -> list[Case]:
    """Recompute over models and lengths: in one piece, in chunks, and behind a cached prefix; one of them at a time.

    What is cached is a part of the sequence in whole blocks. A chunk that holds the whole sequence is no chunk.
    """
    found = []
    for model, seq_len in product(axes.model, axes.seq_lens):
        chunks = [size or None for size in axes.chunk_tokens if size < seq_len]
        cached = [percent * seq_len // 100 // PREFILL_BLOCK * PREFILL_BLOCK or None for percent in axes.cached_percent]
        ways = [(size, None) for size in chunks] + [(None, tokens) for tokens in cached]
        for chunk_tokens, cached_tokens in dict.fromkeys(ways):
            options = {"chunk_tokens": chunk_tokens, "cached_tokens": cached_tokens}
            found.append(_case(axes, model, seq_len, recovery="recompute", **options))
    return found


def copies(axes: Axes) -> list[Case]:
    """Fragment bytes x fragments x method x direction x placement, and the ceilings before and after all of them."""
    points = [
        (size, count) for size, count in product(axes.fragment_bytes, axes.fragments) if size * count <= axes.max_bytes
    ]
    found = []
    for (size, count), direction, method in product(points, (*DIRECTIONS, BOTH), axes.methods):
        ceiling = method == CEILING
        placements, repeats = ([None], (None, 1)) if ceiling else (axes.placements, (None,))
        for placement, repeat, options in product(placements, repeats, _options(axes, method)):
            at: dict[str, Any] = {"fragment_bytes": size, "fragments": count, "repeat": repeat} | options
            found.append(Case("copy", direction=direction, method=method, placement=placement, **at))
    return found


def ridges(axes: Axes) -> list[Case]:
    """A prefill over the tokens of its batch, and what the machine can do at most: matrix products, memory."""
    found = [
        _case(axes, model, tokens, recovery="ridge", probe="prefill")
        for model, tokens in product(axes.model, axes.batch_tokens)
    ]
    found += [Case("ridge", probe="gemm", dtype=axes.dtype, matrix=size) for size in axes.matrices]
    return found + [Case("ridge", probe="memory", memory_bytes=size) for size in axes.memory_bytes]


def batchings(axes: Axes) -> list[Case]:
    """A sequence that comes back alone, into a prefill, and into a decode step; by recompute or by swap in."""
    found = []
    for policy, company in product(axes.policies, [{}, *_companies(axes)]):
        if policy == "recompute":
            for model, seq_len in product(axes.model, axes.seq_lens):
                found.append(_case(axes, model, seq_len, recovery="batching", policy=policy, **company))
        else:
            found += _swapped(axes, recovery="batching", direction="swap_in", policy=policy, **company)
    return found


def preemptions(axes: Axes) -> list[Case]:
    """One sequence preempted several times while it grows, by each policy."""
    found = []
    for policy, times, growth in product(axes.policies, axes.preemptions, axes.growth_tokens):
        if times == 1 and growth != axes.growth_tokens[0]:
            continue  # it has no time to grow
        fields = {"recovery": "preemptions", "policy": policy, "preemptions": times, "growth_tokens": growth}
        if policy == "recompute":
            found += [_case(axes, model, seq_len, **fields) for model, seq_len in product(axes.model, axes.seq_lens)]
        else:
            found += _swapped(axes, **fields)
    return found


def hybrids(axes: Axes) -> list[Case]:
    """Fractions of a sequence to compute while the rest is swapped in; 0 is swap, 1 is recompute."""
    return [
        case
        for fraction in axes.fractions
        for case in _swapped(axes, recovery="hybrid", direction="swap_in", fraction=float(fraction))
    ]


def interferences(axes: Axes) -> list[Case]:
    """A swap beside a decode step or a prefill: both slow down, and each is timed."""
    return [
        case
        for direction, company, timed in product(DIRECTIONS, _companies(axes), ("company", "swap"))
        for case in _swapped(axes, recovery="interference", direction=direction, timed=timed, **company)
    ]


def resumes(axes: Axes) -> list[Case]:
    """From "resume" to the logits of the next token: swap in and one decode step, or recompute."""
    found = []
    for policy in axes.policies:
        if policy == "recompute":
            for model, seq_len in product(axes.model, axes.seq_lens):
                found.append(_case(axes, model, seq_len, recovery="resume", policy=policy))
        else:
            found += _swapped(axes, recovery="resume", direction="swap_in", policy=policy)
    return found


GRIDS: dict[str, Callable[[Axes], list[Case]]] = {
    "swap": swaps,
    "recompute": recomputes,
    "copy": copies,
    "ridge": ridges,
    "batching": batchings,
    "preemptions": preemptions,
    "hybrid": hybrids,
    "interference": interferences,
    "resume": resumes,
}


def _swapped(axes: Axes, **fields: Any) -> list[Case]:
    """Models, lengths, layouts, placements, block sizes and methods, without the ceiling."""
    found = []
    for model, seq_len, method in product(axes.model, axes.seq_lens, axes.methods):
        if method == CEILING:
            continue
        blocks = product(_layouts(axes, model), axes.placements, axes.block_sizes)
        for (layout, placement, block_size), options in product(blocks, _options(axes, method)):
            at = {"method": method, "layout": layout, "placement": placement, "block_size": block_size}
            found.append(_case(axes, model, seq_len, **fields, **at, **options))
    return found


def _companies(axes: Axes) -> list[dict[str, Any]]:
    """Prefills and decode steps, by their size."""
    prefills = [{"company": "prefill", "company_size": size} for size in axes.prefill_tokens]
    decodes = [
        {"company": "decode", "company_size": size, "company_context": axes.decode_context}
        for size in axes.decode_batches
    ]
    return [*prefills, *decodes]


def _layouts(axes: Axes, model: str) -> list[Layout]:
    """The layouts of the axes; a model with one tensor a layer has no K and V to split, so its pieces are joined."""
    joined = shapes.find(model).one_tensor
    layouts: list[Layout] = ["layer_joined" if joined and it == "layer_split" else it for it in axes.layouts]
    return list(dict.fromkeys(layouts))


def _options(axes: Axes, method: str) -> list[dict[str, int]]:
    """The values of the method's own option; one empty choice where it has none."""
    option = METHOD_OPTIONS.get(method)
    return [{option: value} for value in getattr(axes, option)] if option else [{}]


def _case(axes: Axes, model: str, seq_len: int, **fields: Any) -> Case:
    shape = shapes.find(model)
    try:
        timed = shape.with_layers(axes.layers).layers
    except ValueError as error:
        raise SweepError(str(error)) from error
    sizes: dict[str, Any] = {
        "layers_timed": timed,
        "layers_model": shape.layers,
        "seq_len": seq_len,
        "batch": axes.batch,
    }
    return Case(**fields, **sizes, model=model, dtype=axes.dtype)
