"""Batching and interference on a stand-in GPU whose link and kernels take a planted time: streams really overlap."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.running import ROOT, STANDIN
from tests.standin.test_standin import output_of

pytestmark = [
    pytest.mark.standin,
    pytest.mark.skipif(not STANDIN.is_file(), reason="no stand-in GPU beside this checkout"),
]
SWEEP = """
model = "tiny"
dtype = "bfloat16"
seq_lens = [64]
block_sizes = [16]
layouts = ["cross_layer"]
placements = ["scattered"]
methods = ["memcpy_loop"]
layers = 1
budget_s = 1.0
[batching]
prefill_tokens = []
decode_batches = [4]
decode_context = 20
[interference]
prefill_tokens = []
decode_batches = [4]
decode_context = 20
"""
# A swap is 4 copies of 2 KiB, a step of one layer some 15 kernels: few and long, so that the delays of a busy host are
# little beside them.
LINK = {"FAKEGPU_COPY_US": "16000", "FAKEGPU_H2D_GBPS": "0.2", "FAKEGPU_D2H_GBPS": "0.2"}
PLANTED = LINK | {"FAKEGPU_KERNEL_US": "4000"}
SWAP_S = 4 * 16.01e-3


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    benches = ("bench/bench_batching.py", "bench/bench_interference.py")
    return output_of(tmp_path_factory.mktemp("company"), SWEEP, *benches, **PLANTED)


def of(output: dict[str, Any], recovery: str, **case: Any) -> list[dict[str, Any]]:
    rows = [entry["extra_info"] for entry in output["benchmarks"]]
    return [row for row in rows if row["case"]["recovery"] == recovery and case.items() <= row["case"].items()]


def device_s(clocks: dict[str, list[float]]) -> float:
    """The round that a busy host disturbed least."""
    return min(clocks["device_s"])


def test_every_case_ran_as_a_graph_with_the_kernel_for_decoding(output: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(json.loads((ROOT / "results" / "schema.json").read_text())).validate(output)
    assert output["skipped"] == output["failed"] == []
    assert (len(of(output, "batching")), len(of(output, "interference"))) == (4, 4)
    for row in of(output, "batching", company="decode") + of(output, "interference"):
        assert row["detail"]["cuda_graph"] is True
        assert row["detail"]["decode_attention"] == "PAGED_TRITON"


def test_a_swap_beside_a_step_takes_less_than_both(output: dict[str, Any]) -> None:
    (row,) = of(output, "batching", policy="swap", company="decode")
    (alone,) = of(output, "batching", policy="swap", company=None)
    together_s, step_s, swap_s = device_s(row["clocks"]), device_s(row["baseline"]), device_s(alone["clocks"])
    assert swap_s == pytest.approx(SWAP_S, rel=0.1)
    assert 0.95 * max(step_s, swap_s) < together_s < 0.8 * (step_s + swap_s)


def test_a_recomputed_sequence_adds_its_own_kernels_alone(output: dict[str, Any]) -> None:
    """Its attention and the joining of outputs, a few kernels a layer; everything else is shared."""
    (row,) = of(output, "batching", policy="recompute", company="decode")
    (alone,) = of(output, "batching", policy="recompute", company=None)
    added_s = device_s(row["clocks"]) - device_s(row["baseline"])
    assert 0 < added_s < 0.5 * device_s(alone["clocks"])


@pytest.mark.parametrize("direction", ["swap_out", "swap_in"])
def test_neither_waits_for_the_other(output: dict[str, Any], direction: str) -> None:
    """In turn each would take more than twice as long, since the other never stops."""
    (swap,) = of(output, "interference", timed="swap", direction=direction)
    (company,) = of(output, "interference", timed="company", direction=direction)
    assert device_s(swap["baseline"]) == pytest.approx(SWAP_S, rel=0.1)
    for row in (swap, company):
        assert device_s(row["clocks"]) < 1.7 * device_s(row["baseline"])
        assert row["detail"]["beside_runs"] >= len(row["clocks"]["wall_s"]) / 2
