from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from bench import bench_recompute, grids, sweep
from bench.cases import in_order
from bench.memory import passes
from bench.session import Session
from bench.sweep import SWEEPS, SweepError
from kernels import shapes
from tests.kernels.hf_configs import CONFIGS, EXPECTED

SCHEMA = json.loads((Path(__file__).parents[2] / "results" / "schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(path.stem for path in SWEEPS.glob("*.toml")))
def test_every_case_keeps_the_contract_and_has_a_name_of_its_own(name: str) -> None:
    session = Session(sweep.load(name), "cpu", 0, [])
    validator = jsonschema.Draft202012Validator(SCHEMA["$defs"]["case"])
    for case in session.cases.values():
        validator.validate(case.as_dict())
    assert sum(len(table) for table in session.tables.values()) == len(session.cases)
    assert len({tuple(case.as_dict().items()) for case in session.cases.values()}) == len(session.cases)


def test_figure19_covers_both_directions_and_recompute() -> None:
    axes = sweep.load("figure19").tables
    swaps, recomputes = grids.swaps(axes["swap"]), grids.recomputes(axes["recompute"])
    looped = [case for case in swaps if case.model == "opt-13b" and case.method == "memcpy_loop"]
    assert len(looped) == 2 * 9
    assert sum(case.is_ceiling for case in swaps) == 2 * 2
    assert [(case.model, case.layers_timed) for case in recomputes] == [("opt-13b", 40), ("llama-3-8b", 32)]


def test_order_is_by_model_with_ceilings_first_and_drawn_from_the_seed() -> None:
    session = Session(sweep.load("figure19"), "cpu", 0, [])
    every = list(session.cases.values())
    ordered = in_order(every, 3)
    assert sorted(case.id for case in ordered) == sorted(session.cases)
    models = [case.model for case in ordered]
    assert models == sorted(models, key=["opt-13b", "llama-3-8b", None].index)
    assert all(case.is_ceiling for case in ordered[:2])
    assert in_order(every, 3) == ordered
    assert in_order(every, 4) != ordered


def test_the_ceiling_of_copies_is_measured_before_and_after() -> None:
    ordered = in_order(grids.copies(sweep.load("cpu").tables["copy"]), 0)
    ceilings = [place for place, case in enumerate(ordered) if case.is_ceiling]
    half = len(ceilings) // 2
    assert ceilings == [*range(half), *range(len(ordered) - half, len(ordered))]
    assert [case.repeat for case in ordered if case.is_ceiling] == [None] * half + [1] * half


def test_copies_are_bounded_by_their_bytes() -> None:
    axes = replace(sweep.load("full").tables["copy"], max_bytes=1 << 20)
    sizes = {(case.fragment_bytes, case.fragments) for case in grids.copies(axes)}
    assert max(size * count for size, count in sizes if size and count) == 1 << 20
    assert {24576, 28672, 32768} <= {size for size, _ in sizes}
    assert {case.direction for case in grids.copies(axes)} == {"swap_out", "swap_in", "both"}


def test_layers_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(SweepError, match="--layers 33: llama-3-8b has 32 layers"):
        grids.swaps(sweep.load("quick", {"layers": 33}).tables["swap"])


@pytest.mark.parametrize("name", ["deepseek-v2-lite", "gpt-oss-20b", "falcon-7b", "gemma-3-4b"])
def test_models_that_cannot_be_computed_are_swapped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "SHAPES", dict(shapes.SHAPES))
    layouts = ["layer_split", "layer_joined", "cross_layer"]
    loaded = sweep.load("cpu", {"model": str(CONFIGS / f"{name}.json"), "layers": 0, "layouts": layouts})
    swaps, recomputes = grids.swaps(loaded.tables["swap"]), grids.recomputes(loaded.tables["recompute"])
    for case in swaps:
        assert case.geometry.block_bytes == EXPECTED[name][0] // 2 * 4 * case.geometry.block_size  # cpu: float32
    latent = name == "deepseek-v2-lite"
    assert {case.layout for case in swaps if case.layout} == set(layouts[1:] if latent else layouts)
    assert len({case.id for case in swaps}) == len(swaps)
    assert passes(recomputes[0]) == []
    with pytest.raises(pytest.skip.Exception, match=rf"{name}: .*; its KV cache can only be swapped"):
        bench_recompute.bench_recompute(recomputes[0], None, None)  # type: ignore[arg-type]


def test_a_latent_is_one_piece_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "SHAPES", dict(shapes.SHAPES))
    loaded = sweep.load("cpu", {"model": str(CONFIGS / "deepseek-v2-lite.json"), "layers": 0})
    joined = next(case for case in grids.swaps(loaded.tables["swap"]) if case.layout == "layer_joined")
    block, layer, kv = joined.geometry.strides(8)
    assert (kv * 2, layer) == (block, 8 * block)  # a layer's 576 elements lie together, block after block
    assert block == joined.geometry.block_size * 576 * 4
