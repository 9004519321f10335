"""The benches of what happens beside company: batching and interference, as their users run them on a CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from bench import bench_batching, bench_interference, sweep
from bench.cases import Case
from bench.company import ReadyStep, company_flops, ready_steps
from bench.session import Session
from bench.verify import NotVerified
from tests.bench.fakes import FakeBenchmark
from tests.kernels.hf_configs import CONFIGS
from tests.running import ROOT, each_run
from tests.tiny_model import SWEEP

TABLES = """
[batching]
prefill_tokens = [8]
decode_batches = [3]
decode_context = 9
[interference]
prefill_tokens = [8]
decode_batches = [3]
decode_context = 9
"""
TINY = (
    SWEEP.replace("[32, 64]", "[20]\nbatch = 2")
    .replace("[1, 16]", "[4]")
    .replace('["memcpy_loop", "torch_copy", "contiguous"]', '["memcpy_loop"]')
    .replace('["layer_split", "cross_layer"]', '["layer_joined"]')
    + TABLES
)
KV_BYTES = 4 * 2 * 2 * 16 * 4  # of a token: layers, K and V, heads, head_dim, float32
LAYER = 64 * (2 * 64 + 2 * 32) + 3 * 64 * 128  # matrix elements
Rows = list[dict[str, Any]]


def flops(new: int, cached: int = 0) -> int:
    return 4 * (2 * LAYER * new + 64 * (2 * new * new + 4 * new * cached)) + 2 * 256 * 64


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, dict[str, Any]]]:
    """Terminal and JSON of a run of the tiny model, and of one of a model that can only be swapped."""
    folder = tmp_path_factory.mktemp("company")
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
    benches = ["bench/bench_batching.py", "bench/bench_interference.py"]
    arguments = [*benches, f"--sweep={folder / 'tiny.toml'}", "--device=cpu"]
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


def of(rows: Rows, recovery: str, **case: Any) -> Rows:
    return [row for row in rows if row["case"]["recovery"] == recovery and case.items() <= row["case"].items()]


def test_the_files_keep_the_contract(runs: list[tuple[str, dict[str, Any]]], rows: Rows) -> None:
    validator = jsonschema.Draft202012Validator(json.loads((ROOT / "results" / "schema.json").read_text()))
    for _, output in runs:
        validator.validate(output)
        assert "UNSERIALIZABLE" not in json.dumps(output["benchmarks"], allow_nan=False)
        assert output["failed"] == []
    assert runs[0][1]["skipped"] == []
    assert (len(of(rows, "batching")), len(of(rows, "interference"))) == (6, 8)


def test_rounds_with_and_without_come_in_pairs(rows: Rows) -> None:
    for row in rows:
        alone = row["case"]["recovery"] == "batching" and row["case"]["company"] is None
        assert (row["baseline"] is None) == alone
        for clock in () if alone else ("wall_s", "issue_s", "device_s"):
            assert len(row["baseline"][clock]) == len(row["clocks"][clock]) >= 5


@pytest.mark.parametrize("company", [None, "prefill", "decode"])
def test_the_work_of_a_batching_row_is_what_joins(rows: Rows, company: str | None) -> None:
    """Two sequences of 20 tokens, in blocks of 4."""
    (recomputed,) = of(rows, "batching", policy="recompute", company=company)
    (swapped,) = of(rows, "batching", policy="swap", company=company)
    assert (recomputed["work"]["flops"], recomputed["work"]["bytes"]) == (2 * flops(20), None)
    assert (swapped["work"]["flops"], swapped["work"]["bytes"]) == (None, 40 * KV_BYTES)
    assert (recomputed["verified"], swapped["verified"]) == (False, True)
    assert ("attention_backend" in swapped["detail"]) == (company is not None)


def test_interference_times_the_one_beside_the_other(rows: Rows) -> None:
    for row in of(rows, "interference"):
        case, detail = row["case"], row["detail"]
        assert row["verified"] is True
        assert detail["beside_alone_s"] > 0
        assert detail["beside_runs"] >= len(row["clocks"]["wall_s"]) / 2  # two rounds in a row may share one
        assert detail["decode_attention"] == ("FLASH_ATTENTION" if case["company"] == "decode" else None)
        if case["timed"] == "swap":
            assert (row["work"]["bytes"], row["work"]["flops"]) == (40 * KV_BYTES, None)
        else:
            computed = 3 * flops(1, 9) if case["company"] == "decode" else flops(8)
            assert (row["work"]["bytes"], row["work"]["flops"]) == (None, computed)


def test_the_run_ends_with_the_tokens_that_ride_for_free(runs: list[tuple[str, dict[str, Any]]]) -> None:
    lines = runs[0][0].splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("tokens that ride for free"))
    assert lines[at].endswith("on a decode step of tiny, 9 tokens cached")
    assert [line.partition(":")[0] for line in lines[at + 1 : at + 3]] == [
        "      3 sequences, recomputed in the same pass",
        "      3 sequences, swapped in beside it by memcpy_loop, layer_joined, scattered, block 4",
    ]


def test_what_cannot_be_computed_is_swapped_alone_at_most(runs: list[tuple[str, dict[str, Any]]]) -> None:
    _, output = runs[1]
    (only,) = [entry["extra_info"]["case"] for entry in output["benchmarks"]]
    assert (only["recovery"], only["policy"], only["company"]) == ("batching", "swap", None)
    assert len(output["skipped"]) == 5 + 8
    assert all("can only be swapped" in entry["reason"] for entry in output["skipped"])


@pytest.fixture
def session(tmp_path: Path) -> Session:
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    session = Session(sweep.load(str(tmp_path / "tiny.toml")), "cpu", 0, [])
    session.order = {name: place for place, name in enumerate(session.cases)}
    return session


def case_of(session: Session, recovery: str, **fields: Any) -> Case:
    cases = session.tables[recovery].values()
    return next(case for case in cases if fields.items() <= case.as_dict().items())


def steps_of(session: Session, case: Case, alone: bool = True) -> tuple[list[ReadyStep], list[np.ndarray]]:
    pool, ids, company_ids = session.workbench.place_on_device(case)
    joining = [np.split(ids, 2), *([[]] if alone else [])]
    return ready_steps(case, session.workbench, session.device, pool, company_ids, joining), list(company_ids)


@pytest.mark.parametrize(("company", "new", "cached"), [("decode", [1, 1, 1], [9, 9, 9]), ("prefill", [8], [0])])
def test_both_steps_compute_the_same_company(session: Session, company: str, new: list[int], cached: list[int]) -> None:
    case = case_of(session, "batching", policy="recompute", company=company)
    (together, alone), ids = steps_of(session, case)
    with_it, without = together.step.forward, alone.step.forward
    tokens = sum(new)
    positions = [place for start, length in zip(cached, new, strict=True) for place in range(start, start + length)]
    assert without.positions.tolist() == positions
    assert with_it.positions.tolist() == [*positions, *range(20), *range(20)]
    assert torch.equal(with_it.token_ids[:tokens], without.token_ids)
    assert all(torch.equal(whole[:tokens], part) for whole, part in zip(with_it.slot, without.slot, strict=True))
    owners, block_size = np.repeat(range(len(new)), new), case.geometry.block_size
    assert without.slot[0].tolist() == [
        ids[owner][place // block_size] for owner, place in zip(owners, positions, strict=True)
    ]
    assert with_it.weights is without.weights
    assert with_it.kv[0][0].data_ptr() == without.kv[0][0].data_ptr()
    assert (together.step.attention, len(together.graph.issue())) == (alone.step.attention, len(new) + 2)
    assert together.graph.issue().isfinite().all()  # what it has cached are numbers
    assert company_flops(case) == sum(flops(*each) for each in zip(new, cached, strict=True))


def test_all_steps_are_recorded_or_none(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import company

    refusals = iter((None, "no memory"))

    def graphed(step: Any) -> Any:
        graph = step_graph(step)
        return replace(graph, recorded=(lambda: None, None), refusal=None) if next(refusals) is None else graph

    step_graph = company.graphed
    monkeypatch.setattr(company, "graphed", graphed)
    (together, alone), _ = steps_of(session, case_of(session, "batching", policy="recompute", company="prefill"))
    assert (together.graph.recorded, alone.graph.recorded) == (None, None)
    assert together.graph.refusal == alone.graph.refusal == "a CPU runs what is issued at once"


@pytest.mark.parametrize(
    ("bench", "fields"),
    [
        (bench_batching, {"recovery": "batching", "policy": "swap", "company": "decode"}),
        (bench_batching, {"recovery": "batching", "policy": "swap", "company": None}),
        (bench_interference, {"recovery": "interference", "timed": "swap", "direction": "swap_out"}),
        (bench_interference, {"recovery": "interference", "timed": "company", "direction": "swap_in"}),
    ],
    ids=["beside a step", "alone", "timed", "beside"],
)
def test_a_swap_that_loses_bytes_leaves_no_row(
    session: Session, monkeypatch: pytest.MonkeyPatch, bench: Any, fields: dict[str, Any]
) -> None:
    make_transfer: Callable[..., Any] = bench.make_transfer
    monkeypatch.setattr(bench, "make_transfer", lambda *of: replace(make_transfer(*of), issue=lambda: None))
    run = getattr(bench, bench.__name__.rpartition(".")[2])
    with pytest.raises(NotVerified, match="bytes did not arrive"):
        run(case_of(session, **fields), session, FakeBenchmark())
    assert session.rows == []
