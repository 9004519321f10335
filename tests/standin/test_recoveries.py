"""Recoveries under a stand-in GPU with a planted slow link: who waits for whom, and who waits for nobody.

Other processes can make a round longer than planted and never shorter, so the shortest round is held against the plan.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.running import STANDIN, bench, run
from tests.tiny_model import SHAPES

pytestmark = [
    pytest.mark.standin,
    pytest.mark.skipif(not STANDIN.is_file(), reason="no stand-in GPU beside this checkout"),
]
SWEEP = """
model = "tiny"
dtype = "bfloat16"
seq_lens = [64]
block_sizes = [4]
layouts = ["layer_split"]
placements = ["scattered"]
methods = ["memcpy_batch"]
budget_s = 0.3
[preemptions]
policies = ["swap", "swap_kept"]
preemptions = [3]
growth_tokens = [10]
[hybrid]
fractions = [0, 0.5, 1]
[resume]
policies = ["swap"]
"""
COPY_US, GBPS, TFLOPS = 140, 0.2, 0.001
PLANTED = {"FAKEGPU_COPY_US": str(COPY_US), "FAKEGPU_H2D_GBPS": str(GBPS), "FAKEGPU_D2H_GBPS": str(GBPS)}
TINY = SHAPES["tiny"]


def output_of(folder: Path, *benches: str, fails: bool = False, **environment: str) -> dict[str, Any]:
    (folder / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    chosen = (f"--sweep={folder / 'sweep.toml'}", f"--benchmark-json={folder / 'out.json'}")
    done = bench(*(f"bench/bench_{table}.py" for table in benches), *chosen, standin=True, **environment)
    assert done.returncode == int(fails), done.stdout + done.stderr
    output: dict[str, Any] = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert output["skipped"] == []
    return output


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder, benches = tmp_path_factory.mktemp("recoveries"), ("preemptions", "hybrid", "resume")
    output = output_of(folder, *benches, FAKEGPU_TFLOPS=str(TFLOPS), **PLANTED)
    assert len(output["benchmarks"]) == 2 + 3 + 1
    return [entry["extra_info"] for entry in output["benchmarks"]]


def of(rows: list[dict[str, Any]], recovery: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["case"]["recovery"] == recovery]


def link_s(row: dict[str, Any]) -> float:
    """What its copies take on the planted link."""
    return float((row["work"]["descriptors"] or 0) * COPY_US * 1e-6 + (row["work"]["bytes"] or 0) / GBPS / 1e9)


def test_who_must_wait_does_so_however_slow_the_link() -> None:
    chosen = ("tests/gpu/test_recovery_gpu.py", "-k", "overtakes or spoiled or landed", "-p", "no:cacheprovider")
    done = run("-m", "pytest", "-q", *chosen, standin=True, **PLANTED)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_preemption_really_crosses_the_link(rows: list[dict[str, Any]]) -> None:
    for row in of(rows, "preemptions"):
        assert min(row["clocks"]["device_s"]) > 0.95 * link_s(row)


def test_the_front_is_computed_while_the_rest_comes_in(rows: list[dict[str, Any]]) -> None:
    """Half the tokens take some 10 ms to compute and as long to copy."""
    for row in of(rows, "hybrid"):
        front_s = TINY.linear_flops(row["detail"]["front_tokens"]) / TFLOPS / 1e12
        wall_s = min(row["clocks"]["wall_s"])
        assert wall_s > 0.95 * max(front_s, link_s(row))
        if row["case"]["fraction"] == 0.5:
            assert min(front_s, link_s(row)) > 8e-3
            assert wall_s < 0.8 * (front_s + link_s(row))


def test_a_step_comes_behind_its_swap(rows: list[dict[str, Any]]) -> None:
    (row,) = of(rows, "resume")
    step_s = (TINY.linear_flops(1) + TINY.head_flops()) / TFLOPS / 1e12
    assert min(row["clocks"]["wall_s"]) > 0.95 * (link_s(row) + step_s)
    assert row["detail"]["step_alone_s"] > 0.95 * step_s


def test_a_lost_byte_leaves_no_number(tmp_path: Path) -> None:
    output = output_of(tmp_path, "preemptions", fails=True, FAKEGPU_LOSE_EVERY="9")
    assert output["benchmarks"] == []
    assert all("did not arrive" in entry["reason"] for entry in output["failed"])
