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
QUESTIONS = (  # axes of one bench file alone, as `bench.cases.Case` has them
    *("chunk_tokens", "cached_tokens", "probe", "matrix", "memory_bytes", "policy", "company", "company_size"),
    *("company_context", "preemptions", "growth_tokens", "fraction", "timed"),
)
BLOCKS: dict[str, Any] = {"method": "memcpy_batch", "layout": "layer_split", "placement": "scattered", "block_size": 16}
PEAK = 312e12  # FLOP/s of an A100's data sheet


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


def question(recovery: str, model: str = "llama-3-8b", seq_len: int = 1024, **fields: Any) -> dict[str, Any]:
    """A case of one of the newer bench files: every axis is there, null where it does not apply."""
    axes = dict.fromkeys(QUESTIONS)
    return case(model, seq_len=seq_len) | axes | {"recovery": recovery, "dtype": "bfloat16"} | fields


def rounds(seconds: float, spread: float = 0.001, count: int = 9) -> list[float]:
    """Rounds that lie evenly within `spread` of `seconds`, which is their median."""
    return [float(seconds * (1 + spread * step)) for step in np.linspace(-1, 1, count)]


def clocks(seconds: float) -> dict[str, list[float]]:
    """Three clocks of `rounds`."""
    wall = rounds(seconds)
    return {"wall_s": wall, "issue_s": [w / 2 for w in wall], "device_s": [w * 0.9 for w in wall]}


def work(**known: Any) -> dict[str, Any]:
    """What a case does; null where it is not known."""
    return dict.fromkeys(("bytes", "descriptors", "fragment_bytes", "descriptors_merged", "flops")) | known


def asked(
    point: dict[str, Any], seconds: float, detail: dict[str, Any], without_s: float | None = None, **done: Any
) -> dict[str, Any]:
    """The row of a `question`; `without_s` is its baseline, `done` its work."""
    baseline = None if without_s is None else clocks(without_s)
    return row(point, rounds(seconds), baseline=baseline, work=work(**done), detail=detail)


def recompute_row(seconds: float, **fields: Any) -> dict[str, Any]:
    """A recompute with every axis of today: `chunk_tokens` and `cached_tokens` among them."""
    detail = {"outside_layers_s": 0.001, "mfu": 0.5, "mfu_gemm": 0.6, "compile_s": 12.0, "cuda_graph": False}
    return asked(question("recompute", **fields), seconds, detail, flops=10**12)


def ridge_prefill_row(tokens: int, seconds: float, model: str = "llama-3-8b", **fields: Any) -> dict[str, Any]:
    """Prefill of `tokens` tokens; FLOPs and bytes are those of the shape."""
    shape = shapes.find(model)
    flops = shape.prefill_flops(tokens)
    nbytes = shape.weight_bytes("bfloat16") + 2 * tokens * shape.kv_bytes_per_token("bfloat16")
    mfu = {"mfu": flops / seconds / PEAK, "mfu_gemm": flops / seconds / 250e12}
    detail = {"memory_bytes": nbytes, "flop_per_byte": flops / nbytes, **mfu}
    return asked(question("ridge", model, tokens, probe="prefill", **fields), seconds, detail, flops=flops)


OF_NO_MODEL = dict.fromkeys(("model", "dtype", "layers_timed", "layers_model", "seq_len", "batch"))


def ridge_gemm_row(matrix: int, flops_s: float, dtype: str = "bfloat16") -> dict[str, Any]:
    """Product of two square matrices at `flops_s` FLOP/s."""
    point = question("ridge", probe="gemm", matrix=matrix) | OF_NO_MODEL | {"dtype": dtype}
    return asked(point, 2 * matrix**3 / flops_s, {"mfu": flops_s / PEAK}, flops=2 * matrix**3)


def ridge_memory_row(memory_bytes: int, bytes_s: float) -> dict[str, Any]:
    """`memory_bytes` read and as many written, at `bytes_s` bytes a second in all."""
    point = question("ridge", probe="memory", memory_bytes=memory_bytes) | OF_NO_MODEL
    return asked(point, 2 * memory_bytes / bytes_s, {"memory_gbps": bytes_s / 1e9})


def batching_row(
    seq_len: int,
    seconds: float,
    without_s: float | None = None,
    *,
    policy: str = "recompute",
    company: str | None = None,
    company_size: int | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A step with the sequence in `seconds`, without it in `without_s`; without company the sequence alone."""
    beside: dict[str, Any] = {
        "company": company,
        "company_size": company_size,
        "company_context": 256 if company == "decode" else None,
    }
    swap: dict[str, Any] = {"direction": "swap_in", **BLOCKS} if policy == "swap" else {}
    point = question("batching", seq_len=seq_len, policy=policy, **(beside | swap | fields))
    done: dict[str, Any] = {"bytes": seq_len << 17, "descriptors": 64} if swap else {"flops": 16 * 10**9 * seq_len}
    return asked(point, seconds, {}, without_s, **done)


def preemptions_row(times: int, seconds: float, policy: str = "recompute", **fields: Any) -> dict[str, Any]:
    """All of `times` preemptions, 128 tokens apart."""
    axes: dict[str, Any] = {"seq_len": 1024, "growth_tokens": 128} | fields
    swap = BLOCKS if policy != "recompute" else {}
    lengths = [axes["seq_len"] + axes["growth_tokens"] * n for n in range(times)]
    held = [0, *lengths[:-1]] if policy == "swap_kept" else [0] * times
    bytes_in = [length << 17 for length in lengths] if swap else []
    bytes_out = [(length - kept) << 17 for length, kept in zip(lengths, held, strict=True)] if swap else []
    detail = {"lengths": lengths, "bytes_out": bytes_out, "bytes_in": bytes_in}
    point = question("preemptions", policy=policy, preemptions=times, **(swap | axes))
    done = {"bytes": sum(bytes_in + bytes_out)} if swap else {"flops": 16 * 10**9 * sum(lengths)}
    return asked(point, seconds, detail, **done)


def hybrid_row(
    fraction: float, seconds: float, front_s: float | None, rest_s: float | None, **fields: Any
) -> dict[str, Any]:
    """The first `fraction` computed, the rest swapped in; `front_s` and `rest_s` are seconds of each part alone."""
    axes: dict[str, Any] = {"seq_len": 4096, "direction": "swap_in", **BLOCKS} | fields
    front = int(fraction * axes["seq_len"])
    detail = {"front_tokens": front, "front_alone_s": front_s, "rest_alone_s": rest_s}
    done = {"bytes": (axes["seq_len"] - front) << 17, "flops": 16 * 10**9 * front}
    return asked(question("hybrid", fraction=fraction, **axes), seconds, detail, **done)


def interference_row(
    seconds: float,
    alone_s: float,
    *,
    timed: str = "company",
    beside_alone_s: float = 0.010,
    beside_runs: int = 9,
    **fields: Any,
) -> dict[str, Any]:
    """One of a swap and a decode step of 64 timed beside the other: `seconds` beside, `alone_s` alone."""
    axes: dict[str, Any] = {"company": "decode", "company_size": 64, "company_context": 256, "direction": "swap_in"}
    point = question("interference", timed=timed, **(BLOCKS | axes | fields))
    detail = {"beside_alone_s": beside_alone_s, "beside_runs": beside_runs}
    return asked(point, seconds, detail, alone_s, bytes=1 << 27, descriptors=4096)


def resume_row(seconds: float, policy: str = "recompute", step_s: float | None = None, **fields: Any) -> dict[str, Any]:
    """Until the next token's logits; `step_s` is the decode step alone, of a swap."""
    swap: dict[str, Any] = {"direction": "swap_in", **BLOCKS} if policy == "swap" else {}
    detail = {"step_alone_s": step_s} if swap else {}
    point = question("resume", policy=policy, **(swap | fields))
    return asked(point, seconds, detail, **({"bytes": 1 << 27} if swap else {"flops": 10**13}))


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
