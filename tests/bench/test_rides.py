from __future__ import annotations

from typing import Any

import pytest

from bench.rides import free_rides, riding


@pytest.mark.parametrize(
    ("tokens", "added", "expected"),
    [
        ([64, 128], [0.01, 0.09], "96"),  # half of the way from 1 % to 9 % is 5 %
        ([64, 128, 256], [-0.02, 0.05, 0.15], "128"),
        ([64, 128, 256], [0.02, 0.10, 0.03], "88"),  # the first that is not free ends it
        ([64, 128], [0.1, 0.2], "32"),  # half of the way from none
        ([64, 2048], [0.0, 0.04], "all of those measured (up to 2,048)"),
        ([64], [0.05], "all of those measured (up to 64)"),
    ],
)
def test_tokens_are_interpolated_between_measured_ones(tokens: list[int], added: list[float], expected: str) -> None:
    assert riding(tokens, added) == expected


def row(seq_len: int, batch: int, added_s: float, **case: Any) -> dict[str, Any]:
    names = ("model", "dtype", "layers_timed", "policy", "method", "layout", "placement", "block_size")
    axes: dict[str, Any] = dict.fromkeys((*names, "programs", "staging_bytes", "batch"))
    axes |= {"recovery": "batching", "model": "m", "policy": "recompute", "company": "decode"}
    axes |= {"company_size": batch, "company_context": 1024, "seq_len": seq_len}
    without = [1.0, 1.2, 5.0]
    with_it = [wall_s + added_s for wall_s in without]
    return {"case": axes | case, "clocks": {"wall_s": with_it}, "baseline": {"wall_s": without}}


def test_a_line_for_each_batch_and_way_back() -> None:
    swap = {"policy": "swap", "method": "direct_kernel", "programs": 4, "block_size": 16}
    where = {"layout": "layer_split", "placement": "scattered"}
    lines = free_rides(
        [
            row(128, 16, 0.12),  # 10 % of the median step
            row(64, 16, 0.0),
            row(64, 8, 0.9),
            row(64, 8, 0.01, **swap, **where),
            row(64, 8, 0.9, company="prefill"),
            row(64, 8, 0.9, recovery="interference"),
        ]
    )
    assert lines == [
        "tokens that ride for free (at most 5% longer) on a decode step of m, 1,024 tokens cached",
        "      8 sequences, recomputed in the same pass: 4",  # 75 % of the median step at 64 tokens
        "     16 sequences, recomputed in the same pass: 96",
        "      8 sequences, swapped in beside it by direct_kernel, programs 4, layer_split, scattered, block 16: "
        "all of those measured (up to 64)",
    ]


def test_without_such_rows_there_is_nothing_to_say() -> None:
    assert free_rides([]) == []
