"""The table at the end of a run: which copy method was fastest, for each block size and direction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

from bench.cases import CEILING, DIRECTIONS

WIDTH = 28


def best_methods(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Lines of text: a table a model, length, layout and placement; empty where fewer than two methods were timed.

    Parameters
    ----------
    rows : iterable of dict
        `extra_info` of every case of the run.
    """
    tables: dict[tuple[Any, ...], dict[tuple[int, str], list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        case = row["case"]
        if case["recovery"] == "swap" and case["method"] != CEILING:
            key = tuple(case[axis] for axis in ("model", "seq_len", "layout", "placement"))
            tables[key][case["block_size"], case["direction"]].append(row)
    methods = {row["case"]["method"] for table in tables.values() for cell in table.values() for row in cell}
    return [line for key, table in tables.items() for line in _lines(key, table)] if len(methods) > 1 else []


def _lines(key: tuple[Any, ...], table: dict[tuple[int, str], list[dict[str, Any]]]) -> list[str]:
    model, seq_len, layout, placement = key
    sizes = sorted({size for size, _ in table})
    head = f"fastest method, {seq_len:,} tokens of {model}, {layout}, {placement}"
    columns = "  block " + "".join(f"{direction:{WIDTH}}" for direction in DIRECTIONS)
    body = [
        f"  {size:>5} " + "".join(f"{_cell(table.get((size, direction), [])):{WIDTH}}" for direction in DIRECTIONS)
        for size in sizes
    ]
    return [head, *(line.rstrip() for line in (columns, *body))]


def _cell(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "-"
    row = min(rows, key=lambda row: median(row["clocks"]["wall_s"]))
    rate, ceiling = row["work"]["bytes"] / median(row["clocks"]["wall_s"]) / 1e9, row["detail"]["ceiling_gbps"]
    return f"{row['case']['method']}" + (f" ({rate / ceiling:.0%})" if ceiling else "")
