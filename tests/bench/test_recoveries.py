"""The benches of preemptions, hybrids and resuming, as their users run them on a CPU, and what a run says of splits."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

import jsonschema
import pytest

from bench.splits import best_splits, crossing
from tests.kernels.hf_configs import CONFIGS
from tests.running import ROOT, each_run
from tests.tiny_model import SWEEP

TABLES = """
[preemptions]
preemptions = [3]
growth_tokens = [6]
[hybrid]
fractions = [0, 0.5, 1]
[resume]
"""
TINY = (
    SWEEP.replace("[32, 64]", "[32]")
    .replace("[1, 16]", "[4]")
    .replace('["memcpy_loop", "torch_copy", "contiguous"]', '["memcpy_loop"]')
    .replace('["layer_split", "cross_layer"]', '["layer_joined"]')
    + TABLES
)
BENCHES = [f"bench/bench_{table}.py" for table in ("preemptions", "hybrid", "resume")]
KV_BYTES = 4 * 2 * 2 * 16 * 4  # of a token: layers, K and V, heads, head_dim, float32
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, dict[str, Any]]]:
    """Terminal and JSON of a run of the tiny model, and of one of a model that can only be swapped."""
    folder = tmp_path_factory.mktemp("recoveries")
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
    arguments = [*BENCHES, f"--sweep={folder / 'tiny.toml'}", "--device=cpu"]
    latent = [f"--model={CONFIGS / 'deepseek-v2-lite.json'}", "--layers=2"]
    finished = each_run(
        [*arguments, f"--benchmark-json={folder / '0.json'}"],
        [*arguments, *latent, f"--benchmark-json={folder / '1.json'}"],
        OMP_NUM_THREADS="1",
    )
    assert [code for code, _ in finished] == [0, 0], finished
    files = [json.loads((folder / f"{number}.json").read_text(encoding="utf-8")) for number in (0, 1)]
    return [(terminal, output) for (_, terminal), output in zip(finished, files, strict=True)]


@pytest.fixture(scope="module")
def rows(runs: list[tuple[str, dict[str, Any]]]) -> Rows:
    return [entry["extra_info"] for entry in runs[0][1]["benchmarks"]]


def of(rows: Rows, recovery: str, **case: Any) -> dict[str, Any]:
    """The one row of that case."""
    (found,) = [row for row in rows if row["case"]["recovery"] == recovery and case.items() <= row["case"].items()]
    return found


def test_the_files_keep_the_contract(runs: list[tuple[str, dict[str, Any]]]) -> None:
    validator = jsonschema.Draft202012Validator(json.loads((ROOT / "results" / "schema.json").read_text()))
    for _, output in runs:
        validator.validate(output)
        json.dumps(output, allow_nan=False)
        assert "UNSERIALIZABLE" not in json.dumps(output["benchmarks"])
        assert output["failed"] == []
    assert runs[0][1]["skipped"] == []
    assert len(runs[0][1]["benchmarks"]) == 3 + 3 + 2


def test_preemptions_say_what_crossed_each_time(rows: Rows) -> None:
    """Of 32, 38 and 44 tokens in blocks of 4; 38 end in the middle of a block."""
    freed, kept = (of(rows, "preemptions", policy=policy) for policy in ("swap", "swap_kept"))
    for row in (freed, kept):
        assert row["verified"] is True
        assert row["detail"]["lengths"] == [32, 38, 44]
        assert row["detail"]["bytes_in"] == [tokens * KV_BYTES for tokens in (32, 40, 44)]
        assert row["work"]["bytes"] == sum(row["detail"]["bytes_in"]) + sum(row["detail"]["bytes_out"])
    assert freed["detail"]["bytes_out"] == freed["detail"]["bytes_in"]
    assert kept["detail"]["bytes_out"] == [tokens * KV_BYTES for tokens in (32, 8, 8)]


def test_recomputed_preemptions_add_up_in_flops(rows: Rows) -> None:
    row = of(rows, "preemptions", policy="recompute")
    layer = 64 * (2 * 64 + 2 * 32) + 3 * 64 * 128
    flops = sum(4 * (2 * layer * n + 2 * 64 * n * n) + 2 * 256 * 64 for n in (32, 38, 44))
    assert (row["work"]["flops"], row["work"]["bytes"], row["verified"]) == (flops, None, False)
    assert (row["detail"]["lengths"], row["detail"]["bytes_in"]) == ([32, 38, 44], [0, 0, 0])
    assert row["detail"]["cuda_graph"] is False


def test_hybrids_measure_both_parts_alone(rows: Rows) -> None:
    swap, half, recompute = (of(rows, "hybrid", fraction=fraction) for fraction in (0.0, 0.5, 1.0))
    assert [row["detail"]["front_tokens"] for row in (swap, half, recompute)] == [0, 16, 32]
    assert [row["work"]["bytes"] for row in (swap, half, recompute)] == [32 * KV_BYTES, 16 * KV_BYTES, None]
    assert (swap["work"]["flops"], swap["detail"]["front_alone_s"]) == (None, None)
    assert recompute["detail"]["rest_alone_s"] is None
    assert min(half["work"]["flops"], half["detail"]["front_alone_s"], half["detail"]["rest_alone_s"]) > 0
    assert [row["verified"] for row in (swap, half, recompute)] == [True, True, False]
    assert "lm_head_last_token" not in half["detail"]["inside"]


def test_resuming_ends_with_logits_by_either_policy(rows: Rows) -> None:
    swap, recompute = (of(rows, "resume", policy=policy) for policy in ("swap", "recompute"))
    assert swap["work"]["bytes"] == 32 * KV_BYTES  # 31 tokens, in whole blocks
    assert 0 < swap["work"]["flops"] < recompute["work"]["flops"] / 16
    assert swap["detail"]["step_alone_s"] > 0
    assert (swap["verified"], recompute["verified"]) == (True, False)
    assert "lm_head_last_token" in swap["detail"]["inside"]


def test_what_cannot_be_computed_is_preempted_by_swaps_all_the_same(runs: list[tuple[str, dict[str, Any]]]) -> None:
    _, output = runs[1]
    done = [entry["extra_info"]["case"] for entry in output["benchmarks"]]
    assert {(case["recovery"], case["policy"]) for case in done} == {
        ("preemptions", "swap"),
        ("preemptions", "swap_kept"),
    }
    skipped = {(entry["case"]["recovery"], entry["case"]["policy"]) for entry in output["skipped"]}
    assert skipped == {("preemptions", "recompute"), ("hybrid", None), ("resume", "swap"), ("resume", "recompute")}
    assert all("can only be swapped" in entry["reason"] for entry in output["skipped"])


def test_the_run_ends_with_the_best_split(runs: list[tuple[str, dict[str, Any]]], rows: Rows) -> None:
    best = min(
        (row for row in rows if row["case"]["recovery"] == "hybrid"), key=lambda row: median(row["clocks"]["wall_s"])
    )
    lines = runs[0][0].splitlines()
    at = lines.index("hybrid, 32 tokens of tiny, layer_joined, scattered, block 4, memcpy_loop")
    assert lines[at + 1].startswith(f"  fastest with {best['case']['fraction']:g} of the tokens computed: ")


def hybrid(fraction: float, front_s: float | None, rest_s: float | None, wall_s: float, **case: Any) -> dict[str, Any]:
    axes = dict.fromkeys(("dtype", "layers_timed", "batch", "programs", "staging_bytes"))
    axes |= {"recovery": "hybrid", "model": "m", "seq_len": 1000, "layout": "cross_layer", "placement": "packed"}
    return {
        "case": axes | {"block_size": 16, "method": "memcpy_loop", "fraction": fraction} | case,
        "clocks": {"wall_s": [wall_s, wall_s, 9.0]},
        "detail": {"front_tokens": int(1000 * fraction), "front_alone_s": front_s, "rest_alone_s": rest_s},
    }


def test_the_best_is_held_against_its_parts_and_against_the_extremes() -> None:
    """Computing takes 1 ms for each percent and 10 ms in any case, swapping 0.5 ms for each percent."""
    swept = [
        hybrid(1.0, 0.110, None, 0.111),
        hybrid(0.0, None, 0.050, 0.050),
        hybrid(0.2, 0.030, 0.040, 0.044),
        hybrid(0.4, 0.050, 0.030, 0.055),
    ]
    other = hybrid(0.2, 0.030, 0.040, 0.041, block_size=32)
    assert best_splits([*swept, other, {"case": {"recovery": "swap"}}]) == [
        "hybrid, 1,000 tokens of m, cross_layer, packed, block 16, memcpy_loop",
        "  fastest with 0.2 of the tokens computed: 44.000 ms; predicted 0.27",
        "  +10.0% over the longer of its parts alone; -12.0% over the faster of swap and recompute",
    ]
    assert best_splits([other]) == []


def test_where_the_extremes_were_not_measured_nothing_is_said_of_them() -> None:
    lines = best_splits([hybrid(0.2, 0.030, 0.040, 0.044), hybrid(0.3, 0.035, 0.036, 0.050)])
    assert lines[1:] == [
        "  fastest with 0.2 of the tokens computed: 44.000 ms; no prediction: one part is always the longer",
        "  +10.0% over the longer of its parts alone",
    ]


def test_curves_cross_between_two_measured_fractions() -> None:
    assert crossing([0, 0.5, 1], [0, 3, 6], [4, 2, 0]) == pytest.approx(0.4)
    assert crossing([0, 0.5, 1], [0, 2, 6], [4, 2, 0]) == 0.5
    assert crossing([0, 1], [0, 1], [0, 0]) == 0
    assert crossing([0.1, 0.2], [1, 2], [5, 4]) is None
    assert crossing([0, 0, 1], [0, 0, 2], [1, 1, 0]) == pytest.approx(1 / 3)
