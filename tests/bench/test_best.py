from __future__ import annotations

from typing import Any

from bench.best import best_methods


def row(method: str, block_size: int, direction: str, wall_s: float, **case: Any) -> dict[str, Any]:
    axes = {"recovery": "swap", "model": "m", "seq_len": 4096, "layout": "layer_split", "placement": "scattered"}
    return {
        "case": axes | {"method": method, "block_size": block_size, "direction": direction} | case,
        "work": {"bytes": 10**9},
        "clocks": {"wall_s": [wall_s, wall_s, 100.0]},
        "detail": {"ceiling_gbps": 10.0},
    }


def test_the_fastest_median_is_named_with_its_share_of_the_ceiling() -> None:
    lines = best_methods(
        [
            row("memcpy_loop", 16, "swap_out", 0.4),
            row("memcpy_batch", 16, "swap_out", 0.2),
            row("memcpy_loop", 1, "swap_in", 1.0),
            row("contiguous", 1, "swap_in", 0.1),
            row("gather_copy", 1, "swap_in", 0.01, recovery="copy"),
        ]
    )
    assert lines == [
        "fastest method, 4,096 tokens of m, layer_split, scattered",
        "  block swap_out                    swap_in",
        "      1 -                           memcpy_loop (10%)",
        "     16 memcpy_batch (50%)          -",
    ]


def test_one_method_needs_no_table() -> None:
    assert best_methods([row("memcpy_loop", 16, "swap_out", 0.4)]) == []
    assert best_methods([]) == []
