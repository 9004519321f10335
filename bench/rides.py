"""The lines at the end of a run on company: how many tokens a decode step takes along without taking longer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from bench.cases import OPTIONS

FREE = 0.05  # of the step without them: what rounds of one step differ by anyway
STEP = ("model", "dtype", "layers_timed", "company_context")
WAY = ("policy", "method", "layout", "placement", "block_size", *OPTIONS)


def free_rides(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Lines of text, one a decode batch and way back: the tokens that join it and add at most `FREE` of its time.

    Parameters
    ----------
    rows : iterable of dict
        `extra_info` of every case of the run.
    """
    steps: dict[tuple[Any, ...], dict[tuple[Any, ...], list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        case = row["case"]
        if case["recovery"] == "batching" and case["company"] == "decode":
            way = tuple(case[axis] for axis in WAY)
            steps[tuple(case[axis] for axis in STEP)][way, case["company_size"]].append(row)
    return [line for step, joined in steps.items() for line in _lines(step, joined)]


def riding(tokens: Sequence[int], added: Sequence[float]) -> str:
    """The most tokens that add at most `FREE`, by straight lines between the measured ones and from none, in words.

    Parameters
    ----------
    tokens : sequence of int
        Ascending.
    added : sequence of float
        What each adds, as a part of the step without them.
    """
    for (fewer, below), (more, above) in pairwise([(0, 0.0), *zip(tokens, added, strict=True)]):
        if above > FREE:
            return f"{fewer + (more - fewer) * (FREE - below) / (above - below):,.0f}"
    return f"all of those measured (up to {tokens[-1]:,})"


def _lines(step: tuple[Any, ...], joined: dict[tuple[Any, ...], list[dict[str, Any]]]) -> list[str]:
    model, _, _, context = step
    head = (
        f"tokens that ride for free (at most {FREE:.0%} longer) on a decode step of {model}, {context:,} tokens cached"
    )
    body = []
    for (way, batch), rows in sorted(joined.items(), key=lambda entry: (str(entry[0][0]), entry[0][1])):
        rows = sorted(rows, key=_tokens)
        answer = riding([_tokens(row) for row in rows], [_added(row) for row in rows])
        body.append(f"  {batch:>5} sequences, {_words(way)}: {answer}")
    return [head, *body]


def _words(way: tuple[Any, ...]) -> str:
    policy, method, layout, placement, block_size, *options = way
    if policy == "recompute":
        return "recomputed in the same pass"
    option = "".join(f", {name} {value}" for name, value in zip(OPTIONS, options, strict=True) if value is not None)
    return f"swapped in beside it by {method}{option}, {layout}, {placement}, block {block_size}"


def _tokens(row: dict[str, Any]) -> int:
    return int(row["case"]["seq_len"] * (row["case"]["batch"] or 1))


def _added(row: dict[str, Any]) -> float:
    """Median of what a round with the sequence took more than the one without, as a part of the latter's median."""
    with_it, without = row["clocks"]["wall_s"], row["baseline"]["wall_s"]
    more = median(longer - step for longer, step in zip(with_it, without, strict=True))
    return float(more / median(without))
