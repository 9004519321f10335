"""The CUDA path end to end on a stand-in GPU whose link is planted. Skipped where no stand-in lies beside the checkout.

Copies really move the bytes there and take the time they are told to; kernels do nothing. No number is a measurement.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import jsonschema
import pytest

from tests.running import ROOT, STANDIN, bench
from tests.tiny_model import SWEEP

pytestmark = [
    pytest.mark.standin,
    pytest.mark.skipif(not STANDIN.is_file(), reason="no stand-in GPU beside this checkout"),
]
PLANTED = """
model = "llama-3-8b"
dtype = "bfloat16"
layers = 2
seq_lens = [256]
block_sizes = [4, 16, 64]
layouts = ["layer_split"]
placements = ["scattered"]
methods = ["memcpy_loop"]
budget_s = 0.3
"""


def output_of(folder: Path, text: str, *arguments: str, fails: bool = False, **environment: str) -> dict[str, Any]:
    (folder / "sweep.toml").write_text(text, encoding="utf-8")
    path = folder / "out.json"
    done = bench(
        *(arguments or ("bench/",)),
        f"--sweep={folder / 'sweep.toml'}",
        f"--benchmark-json={path}",
        standin=True,
        **environment,
    )
    assert done.returncode == int(fails), done.stdout + done.stderr
    output: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return output


def test_device_time_is_the_planted_links(tmp_path: Path) -> None:
    """Also: an NVML that knows a name and nothing else (VM, MIG, GB10) costs facts and not the run."""
    planted = {"FAKEGPU_COPY_US": "20", "FAKEGPU_H2D_GBPS": "1", "FAKEGPU_D2H_GBPS": "1", "FAKEGPU_NVML": "bare"}
    output = output_of(tmp_path, PLANTED, "bench/bench_swap.py", **planted)
    rows = [entry["extra_info"] for entry in output["benchmarks"]]
    assert {row["work"]["fragment_bytes"] for row in rows} == {8192, 32768, 131072}
    for row in rows:
        work = row["work"]
        expected = work["descriptors"] * (20e-6 + work["fragment_bytes"] / 1e9)
        assert median(row["clocks"]["device_s"]) == pytest.approx(expected, rel=0.10)
    assert (output["machine_info"]["gpu"]["ecc"], output["machine_info"]["link"]["pcie_width"]) == (None, None)


def test_a_tiny_sweep_runs_end_to_end(tmp_path: Path) -> None:
    """Also: a link that came down-shifted and clocks that are held down make every row suspect."""
    disturbed = {"FAKEGPU_LINK_WIDTH": "8", "FAKEGPU_CLOCK_REASONS": "8"}
    output = output_of(tmp_path, SWEEP.replace("float32", "bfloat16").replace("[32, 64]", "[64]"), **disturbed)
    jsonschema.Draft202012Validator(json.loads((ROOT / "results" / "schema.json").read_text())).validate(output)
    assert output["skipped"] == output["failed"] == []
    machine, rows = output["machine_info"], [entry["extra_info"] for entry in output["benchmarks"]]
    assert machine["backend"] == "cuda"
    assert machine["gpu"]["name"].startswith("fakegpu")
    assert (machine["link"]["pcie_generation"], machine["link"]["pcie_width_max"]) == (4, 16)
    for row in rows:
        assert {"PCIe width 8 of 16", "clocks held down: hardware slowdown"} <= set(row["suspect"])
    assert [row["detail"]["attention_backend"] for row in rows if row["case"]["recovery"] == "recompute"] != []


def test_copies_that_lose_a_byte_leave_no_number(tmp_path: Path) -> None:
    output = output_of(tmp_path, PLANTED, "bench/bench_swap.py", fails=True, FAKEGPU_LOSE_EVERY="50")
    kept = {json.dumps(entry["extra_info"]["case"]) for entry in output["benchmarks"]}
    failed = {json.dumps(entry["case"]) for entry in output["failed"]}
    assert failed
    assert not kept & failed
    assert len(kept | failed) == 6
    assert all("did not arrive" in entry["reason"] for entry in output["failed"])
    # 256 and 64 copies of 8 and 32 KiB lose bytes for certain
    assert {(case["block_size"]) for case in map(json.loads, failed)} >= {4, 16}


def test_what_the_driver_refuses_is_a_skip(tmp_path: Path) -> None:
    """Also: NVML without a driver is a fact, not a failure."""
    refused = {"FAKEGPU_NO_HOSTREGISTER": "1", "FAKEGPU_NO_HOSTALLOC": "1", "FAKEGPU_NVML": "off"}
    output = output_of(tmp_path, PLANTED, "bench/bench_swap.py", **refused)
    assert output["benchmarks"] == []
    assert len(output["skipped"]) == 6
    assert all("the driver pins no" in entry["reason"] for entry in output["skipped"])
    assert output["machine_info"]["gpu"]["nvml"].startswith("NVML: ")
