"""The arithmetic rate planted into a stand-in GPU is found again, and a prefill is issued well ahead of the device."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from tests.running import STANDIN
from tests.standin.test_standin import output_of

pytestmark = [
    pytest.mark.standin,
    pytest.mark.skipif(not STANDIN.is_file(), reason="no stand-in GPU beside this checkout"),
]
TFLOPS = 5.0
SWEEP = """
model = "mistral-7b"
dtype = "bfloat16"
layers = 1
budget_s = 0.5
[ridge]
batch_tokens = [512, 1024]
matrices = [2048]
memory_bytes = [1048576]
"""


def test_the_planted_rate_is_found_by_products_and_prefills(tmp_path: Path) -> None:
    """Attention takes no time there, so that a prefill comes out a little faster than its products."""
    output = output_of(tmp_path, SWEEP, "bench/bench_ridge.py", FAKEGPU_TFLOPS=str(TFLOPS))
    rows = [entry["extra_info"] for entry in output["benchmarks"]]
    [gemm] = [row for row in rows if row["case"]["probe"] == "gemm"]
    assert gemm["work"]["flops"] / median(gemm["clocks"]["wall_s"]) == pytest.approx(TFLOPS * 1e12, rel=0.1)
    prefills = [row for row in rows if row["case"]["probe"] == "prefill"]
    assert len(prefills) == 2
    for row in prefills:
        detail, clocks = row["detail"], row["clocks"]
        assert detail["cuda_graph"], detail["no_graph_because"]
        assert detail["compiled"], detail["not_compiled_because"]
        assert detail["peak_gemm_flops"] == pytest.approx(TFLOPS * 1e12, rel=0.1)
        assert detail["mfu_gemm"] == pytest.approx(1.0, abs=0.1)
        assert median(clocks["issue_s"]) < 0.1 * median(clocks["device_s"])
        assert "num_device_alloc" not in " ".join(row["suspect"])
