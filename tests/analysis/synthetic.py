"""Result files with known answers: swap costs `overhead + bytes / bandwidth` a fragment, recompute a constant."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels import shapes

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
A100 = {
    "backend": "cuda",
    "gpu": {"name": "NVIDIA A100-SXM4-40GB", "memory_bytes": 42_000_000_000},
    "link": {"pcie_generation": 4, "pcie_width": 16},
    "host": {"cpu": "Xeon 2.2 GHz", "cores": 12, "memory_bytes": 85 << 30},
    "software": {"python": "3.11", "torch": "2.9", "driver": "580.65"},
    "node": "vm-4711",
}
CPU = A100 | {"backend": "cpu", "gpu": None, "link": None}


@dataclass(frozen=True)
class Planted:
    """The constants of a machine: seconds a descriptor, bytes a second, seconds of recompute, relative noise."""

    overhead_s: float = 3e-6
    bandwidth: float = 13e9
    recompute_s: float = 0.0346
    noise: float = 0.01

    def swap_s(self, model: str, layout: shapes.Layout, block_size: int, seq_len: int, layers: int) -> float:
        """Seconds of one direction."""
        shape = shapes.find(model).with_layers(layers)
        count = shape.fragments_per_block(layout) * (seq_len // block_size)
        return count * (self.overhead_s + shape.fragment_bytes(layout, block_size, "float16") / self.bandwidth)


def case(model: str = "opt-13b", layers: int = 0, seq_len: int = 256, **fields: Any) -> dict[str, Any]:
    """A case; swap axes default to null."""
    shape = shapes.find(model)
    axes = dict.fromkeys(("direction", "method", "layout", "placement", "block_size"))
    sizes = {"layers_timed": layers or shape.layers, "layers_model": shape.layers, "seq_len": seq_len, "batch": 1}
    return {"recovery": "recompute", **axes, "model": model, "dtype": "float16", **sizes, **fields}


def copy_case(
    direction: str = "swap_in", method: str = "memcpy_loop", fragment_bytes: int = 4096, **fields: Any
) -> dict[str, Any]:
    """A copy of 512 fragments of no model, as `bench_copy.py` names it; a ceiling has no placement."""
    of_model = ("model", "dtype", "layers_timed", "layers_model", "seq_len", "batch", "layout", "block_size", "repeat")
    placement = None if method == "contiguous" else "packed"
    how = {"recovery": "copy", "direction": direction, "method": method, "placement": placement}
    return dict.fromkeys(of_model) | how | {"fragment_bytes": fragment_bytes, "fragments": 512} | fields


def copy_row(case: dict[str, Any], wall_s: Iterable[float], order: int) -> dict[str, Any]:
    """Its row: bytes and descriptors of both directions where both are copied."""
    count = case["fragments"] * (2 if case["direction"] == "both" else 1)
    work = {"bytes": count * case["fragment_bytes"], "descriptors": count, "fragment_bytes": case["fragment_bytes"]}
    work |= {"descriptors_merged": 1 if case["method"] == "contiguous" else count, "flops": None}
    return row(dict(case), wall_s, order, work=work, detail={"ceiling_gbps": None if case["repeat"] else 20.0})


def row(
    case: dict[str, Any], wall_s: Iterable[float], order: int = 0, session: str = "s1", **info: Any
) -> dict[str, Any]:
    """A benchmark of the file, valid under the schema."""
    wall = [float(second) for second in wall_s]
    fragments = 2 * case["layers_timed"] if case["recovery"] == "swap" else None
    extra = {
        "schema": 1,
        "case": case,
        "work": {
            "bytes": fragments and fragments * 4096,
            "descriptors": fragments,
            "fragment_bytes": fragments and 4096,
            "descriptors_merged": fragments,
            "flops": None if fragments else 10**12,
        },
        "clocks": {"wall_s": wall, "issue_s": [w / 2 for w in wall], "device_s": [w * 0.9 for w in wall]},
        "prepare_s": 0.001,
        "verified": True,
        "suspect": [],
        "session": session,
        "order": order,
        "detail": {"ceiling_gbps": 13.0}
        if fragments
        else {"outside_layers_s": 0.001, "mfu": 0.6, "attention_backend": "flash"},
    }
    return {"name": f"bench[{order}]", "stats": {"data": wall}, "extra_info": extra | info}


def document(
    benchmarks: list[dict[str, Any]], machine: dict[str, Any] | None = None, session: str = "s1"
) -> dict[str, Any]:
    """A whole file."""
    about = {"id": session, "sweep": {}, "seed": 0, "arguments": [], "seconds": 1.0, "peak_host_bytes": 1}
    return {
        "schema": 1,
        "session": about,
        "machine_info": machine or A100,
        "benchmarks": benchmarks,
        "skipped": [],
        "failed": [],
    }


def figure19_document(
    planted: Planted | None = None,
    *,
    models: Sequence[str] = ("opt-13b",),
    seq_lens: Sequence[int] = (256,),
    layout: shapes.Layout = "layer_split",
    block_sizes: Sequence[int] = BLOCK_SIZES,
    layers: int = 0,
    rounds: int = 20,
    machine: dict[str, Any] | None = None,
    session: str = "s1",
) -> dict[str, Any]:
    """A file with everything Figure 19 needs; swap in and out take equally long."""
    planted = planted or Planted()
    rng = np.random.default_rng(len(session))
    rows: list[dict[str, Any]] = []

    def add(seconds: float, **fields: Any) -> None:
        noise = 1 + planted.noise * rng.standard_normal(rounds)
        rows.append(row(case(layers=layers, **fields), seconds * noise, len(rows), session))

    for model in models:
        timed = layers or shapes.find(model).layers
        for seq_len in seq_lens:
            share = timed / shapes.find(model).layers * seq_len / 256
            add((planted.recompute_s - 0.001) * share + 0.001, model=model, seq_len=seq_len)
            for block_size in block_sizes:
                seconds = planted.swap_s(model, layout, block_size, seq_len, timed)
                for direction in ("swap_out", "swap_in"):
                    how = {
                        "method": "memcpy_loop",
                        "layout": layout,
                        "placement": "scattered",
                        "block_size": block_size,
                    }
                    add(seconds, recovery="swap", model=model, seq_len=seq_len, direction=direction, **how)
    return document(rows, machine, session)


def write(folder: Path, content: Any, name: str = "a.json") -> Path:
    """Write JSON (or the text given) and return its path."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
