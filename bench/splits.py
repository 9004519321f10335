"""The lines at the end of a run on splits: which part of a sequence to compute while the rest is swapped in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from bench.cases import OPTIONS

ALIKE = ("model", "dtype", "layers_timed", "seq_len", "batch", "layout", "placement", "block_size", "method", *OPTIONS)


def best_splits(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Lines of text for hybrids that differ in the fraction alone, where there are two or more.

    They name the best fraction of this run, the one that the two parts measured alone predict, how far the best is from
    the longer of its parts alone (no split can be faster), and how far from the faster of swap and recompute.

    Parameters
    ----------
    rows : iterable of dict
        `extra_info` of every case of the run.
    """
    sweeps: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["case"]["recovery"] == "hybrid":
            sweeps[tuple(row["case"][axis] for axis in ALIKE)].append(row)
    return [line for rows in sweeps.values() if len(rows) > 1 for line in _lines(rows)]


def crossing(fractions: Sequence[float], front_s: Sequence[float], rest_s: Sequence[float]) -> float | None:
    """The fraction at which computing the front takes as long as swapping in the rest, between the measured ones.

    There both end at once, and so split Cake (arXiv 2410.03065) and KVPR (arXiv 2411.17089). Straight lines between.

    Parameters
    ----------
    fractions : sequence of float
        Ascending.
    front_s, rest_s : sequence of float
        Seconds that each part takes alone at these fractions; 0 where it is empty.

    Returns
    -------
    float or None
        None if one part takes longer at every fraction.
    """
    ahead = [front - rest for front, rest in zip(front_s, rest_s, strict=True)]
    for (left, before), (right, behind) in pairwise(zip(fractions, ahead, strict=True)):
        if before <= 0 <= behind and before < behind:
            return left + (right - left) * -before / (behind - before)
    return None


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    rows = sorted(rows, key=lambda row: row["case"]["fraction"])
    best = min(rows, key=_wall_s)
    case, wall_s = best["case"], _wall_s(best)
    computed = [row["detail"]["front_tokens"] / case["seq_len"] for row in rows]
    predicted = crossing(computed, [_alone_s(row, "front") for row in rows], [_alone_s(row, "rest") for row in rows])
    bound_s = max(_alone_s(best, "front"), _alone_s(best, "rest"))
    whole = [_wall_s(row) for row in rows if row["case"]["fraction"] in (0, 1)]
    return [
        f"hybrid, {case['seq_len']:,} tokens of {case['model']}, {case['layout']}, {case['placement']}, "
        f"block {case['block_size']}, {case['method']}",
        f"  fastest with {case['fraction']:g} of the tokens computed: {wall_s * 1e3:.3f} ms; "
        + (f"predicted {predicted:.2g}" if predicted is not None else "no prediction: one part is always the longer"),
        f"  {wall_s / bound_s - 1:+.1%} over the longer of its parts alone"
        + (f"; {wall_s / min(whole) - 1:+.1%} over the faster of swap and recompute" if len(whole) > 1 else ""),
    ]


def _wall_s(row: dict[str, Any]) -> float:
    return float(median(row["clocks"]["wall_s"]))


def _alone_s(row: dict[str, Any], part: str) -> float:
    """Seconds of a part alone; none for an empty one."""
    return row["detail"][f"{part}_alone_s"] or 0.0
