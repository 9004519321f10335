"""Rows of every question between swap and recompute whose answers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.contract import ResultFile
from analysis.load import rows
from kernels.shapes import find
from tests.analysis import synthetic as made

SUSPECT = {"suspect": ["clocks held down"]}


def benchmarks(**fields: Any) -> list[dict[str, Any]]:
    """Some rows of every question; the second of each question's is suspect."""
    parts = (ridge_rows, batching_rows, preemption_rows, hybrid_rows, interference_rows, resume_rows)
    found = [part(**fields) for part in parts]
    for part in found:
        part[1]["extra_info"] |= SUSPECT
    return [one for part in found for one in part]


def ridge_rows(**fields: Any) -> list[dict[str, Any]]:
    """10 ms up to the ridge, 200 TFLOP/s past it, of at most 250 TFLOP/s and 1.6 TB/s."""
    flops = find("llama-3-8b").prefill_flops
    prefills = [made.ridge_prefill_row(n, max(0.010, flops(n) / 200e12), **fields) for n in (1, 16, 128, 512, 2048)]
    return [*prefills, made.ridge_gemm_row(4096, 250e12), made.ridge_memory_row(1 << 30, 1.6e12)]


def batching_rows(**fields: Any) -> list[dict[str, Any]]:
    """A step of 20 ms to which 16, 64 and 256 tokens add 0.2, 1 and 20 ms; a swap adds nothing that counts."""
    swap = {"policy": "swap", **fields}
    decode = {"company": "decode", "company_size": 64}
    prefill = {"company": "prefill", "company_size": 512}
    found = []
    for tokens, added in ((16, 0.0002), (64, 0.001), (256, 0.020)):
        found += [
            made.batching_row(tokens, 0.015, **fields),
            made.batching_row(tokens, 0.020 + added, 0.020, **decode, **fields),
            made.batching_row(tokens, 0.050, 0.040, **prefill, **fields),
            made.batching_row(tokens, 0.002, **swap),
            made.batching_row(tokens, 0.0199, 0.020, **decode, **swap),
        ]
    return found


def preemption_rows(**fields: Any) -> list[dict[str, Any]]:
    """80 ms a recompute; 20 ms out and in, 12 ms with the copy kept."""
    each = {"recompute": 0.080, "swap": 0.020, "swap_kept": 0.012}
    return [made.preemptions_row(k, k * time, policy, **fields) for policy, time in each.items() for k in (1, 2, 5)]


def hybrid_rows(**fields: Any) -> list[dict[str, Any]]:
    """300 ms to compute all, 60 ms to swap all in; both at once take 2 ms more than the longer. Two ways."""
    found = []
    for layout, slower in (("cross_layer", 1), ("layer_split", 2)):
        for fraction in (0, 0.1, 0.2, 0.5, 1):
            front, rest = 0.300 * fraction, 0.060 * slower * (1 - fraction)
            time = max(front, rest) + 0.002
            found.append(made.hybrid_row(fraction, time, front or None, rest or None, layout=layout, **fields))
    return found


def interference_rows(**fields: Any) -> list[dict[str, Any]]:
    """A step of 10 ms takes 11 and 13 ms beside a swap, whose 20 ms become 30 ms."""
    ways: list[dict[str, Any]] = [{"method": "memcpy_batch"}, {"method": "direct_kernel", "programs": 16}]
    beside = [
        made.interference_row(time, 0.010, **way, **fields) for way, time in zip(ways, (0.011, 0.013), strict=True)
    ]
    return [*beside, *(made.interference_row(0.030, 0.020, timed="swap", **way, **fields) for way in ways)]


def resume_rows(**fields: Any) -> list[dict[str, Any]]:
    """A step of 10 ms behind the swap."""
    found = []
    for tokens in (256, 4096):
        found.append(made.resume_row(80e-6 * tokens, seq_len=tokens, **fields))
        found.append(made.resume_row(0.010 + 6e-6 * tokens, "swap", 0.010, seq_len=tokens, **fields))
    return found


def frame_of(
    content: list[dict[str, Any]], machine: dict[str, Any] = made.A100, label: str | None = None
) -> pd.DataFrame:
    """What `load` gives of these rows, which were run in another order."""
    shuffled = [content[index] for index in np.random.default_rng(3).permutation(len(content))]
    session = f"of {machine['backend']} {label}"
    for order, one in enumerate(shuffled):
        one["extra_info"] |= {"order": order, "session": session}
    return rows([ResultFile(Path("a.json"), label, made.document(shuffled, machine, session))])
