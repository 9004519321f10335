"""The benches that compute, as their users run them on a CPU: what their rows say, and a case that compiles midway."""

from __future__ import annotations

import json
import os
from statistics import median
from typing import Any

import jsonschema
import pytest

from tests.running import ROOT, each_run

SWEEP = """
model = "tiny"
dtype = "float32"
layers = 2
seq_lens = [64]
budget_s = 0.02
[recompute]
chunk_tokens = [0, 24]
cached_percent = [0, 50]
[ridge]
batch_tokens = [1, 96]
matrices = [64]
memory_bytes = [65536]
"""
# Whenever it is asked, something more has been compiled; tests/bench/test_recompiled.py has the real thing.
RECOMPILING = """
import itertools
import bench.measure

counts = itertools.count()
bench.measure.compilations = lambda: next(counts)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, dict[str, Any]]]:
    """Exit code, terminal and JSON of a run, and of one that compiles midway."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    (folder / "recompiling.py").write_text(RECOMPILING, encoding="utf-8")
    runs = {
        "whole": ["bench/bench_recompute.py", "bench/bench_ridge.py"],
        "recompiling": ["bench/bench_recompute.py", "-p", "recompiling", "-k", "recompute/s64"],
    }
    files = {name: folder / f"{name}.json" for name in runs}
    shared = ["--device=cpu", f"--sweep={folder / 'sweep.toml'}"]
    commands = [[*arguments, *shared, f"--benchmark-json={files[name]}"] for name, arguments in runs.items()]
    done = each_run(*commands, PYTHONPATH=f"{ROOT}{os.pathsep}{folder}", OMP_NUM_THREADS="1")
    return {
        name: (code, terminal, json.loads(files[name].read_text(encoding="utf-8")))
        for name, (code, terminal) in zip(runs, done, strict=True)
    }


def rows_of(output: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rows by what tells them apart."""
    fields = ("recovery", "probe", "seq_len", "chunk_tokens", "cached_tokens")
    rows = [entry["extra_info"] for entry in output["benchmarks"]]
    return {tuple(row["case"][field] for field in fields): row for row in rows}


@pytest.fixture(scope="module")
def rows(outputs: dict[str, tuple[int, str, dict[str, Any]]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    code, terminal, output = outputs["whole"]
    assert code == 0, terminal
    return rows_of(output)


def test_every_case_leaves_a_row_that_keeps_the_contract(
    outputs: dict[str, tuple[int, str, dict[str, Any]]], rows: dict[tuple[Any, ...], dict[str, Any]]
) -> None:
    schema = json.loads((ROOT / "results" / "schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(outputs["whole"][2])
    assert set(rows) == {
        ("recompute", None, 64, None, None),
        ("recompute", None, 64, 24, None),
        ("recompute", None, 64, None, 32),
        ("ridge", "prefill", 1, None, None),
        ("ridge", "prefill", 96, None, None),
        ("ridge", "gemm", None, None, None),
        ("ridge", "memory", None, None, None),
    }
    assert outputs["whole"][2]["skipped"] == []


def test_flops_are_those_of_the_tokens_that_are_computed(rows: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    # two layers of 36,864 parameters (Q and O 64 * 64, K and V 64 * 32, three of 64 * 128), a head of 256 * 64
    linear, head = 2 * 2 * 36_864, 2 * 256 * 64
    whole = 64 * linear + 2 * 64 * 2 * 64 * 64 + head
    behind_half = 32 * linear + 2 * 64 * (2 * 32 * 32 + 4 * 32 * 32) + head
    assert rows["recompute", None, 64, None, None]["work"]["flops"] == whole
    assert rows["recompute", None, 64, 24, None]["work"]["flops"] == whole
    assert rows["recompute", None, 64, None, 32]["work"]["flops"] == behind_half


def test_rows_of_what_is_computed_say_how_and_how_well(rows: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    computed = [row for row in rows.values() if row["case"]["model"]]
    assert len(computed) == 5
    for row in computed:
        detail, rate = row["detail"], row["work"]["flops"] / median(row["clocks"]["wall_s"])
        assert (detail["cuda_graph"], detail["no_graph_because"]) == (False, "a CPU runs what is issued at once")
        assert (detail["compiled"], detail["compile_s"], detail["mfu"]) == (False, 0, None)
        assert detail["peak_gemm_flops"] > 0
        assert detail["mfu_gemm"] == pytest.approx(rate / detail["peak_gemm_flops"])
        assert detail["outside_layers_s"] > 0
    assert len({row["detail"]["peak_gemm_flops"] for row in computed}) == 1  # measured once a session


def test_the_ridge_has_bytes_beside_flops_and_what_the_machine_gives(
    rows: dict[tuple[Any, ...], dict[str, Any]],
) -> None:
    weights = 4 * (2 * 36_864 + 256 * 64)
    for tokens in (1, 96):
        row = rows["ridge", "prefill", tokens, None, None]
        memory_bytes = weights + 2 * tokens * 2 * 2 * 32 * 4  # written and read: two layers, K and V, 32 floats each
        assert row["detail"]["memory_bytes"] == memory_bytes
        assert row["detail"]["flop_per_byte"] == row["work"]["flops"] / memory_bytes
    gemm, memory = rows["ridge", "gemm", None, None, None], rows["ridge", "memory", None, None, None]
    assert gemm["case"]["matrix"] == 64
    assert gemm["work"]["flops"] == 2 * 64**3
    assert gemm["detail"]["mfu"] is None
    assert set(memory["work"].values()) == {None}
    gbps = 2 * 65536 / median(memory["clocks"]["wall_s"]) / 1e9
    assert memory["detail"]["memory_gbps"] == pytest.approx(gbps)


def test_a_case_that_compiles_while_it_is_timed_leaves_no_number(
    outputs: dict[str, tuple[int, str, dict[str, Any]]],
) -> None:
    code, terminal, output = outputs["recompiling"]
    assert code == 1
    assert output["benchmarks"] == []
    [failed] = output["failed"]
    assert failed["reason"].startswith("Recompiled: torch.compile ran")
    assert "FAILED: Recompiled: torch.compile ran" in terminal
