from __future__ import annotations

from pathlib import Path

import pytest

from bench import sweep
from bench.sweep import SWEEPS, SweepError


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_sweep_in_the_box_loads_by_name_and_by_path(path: Path) -> None:
    assert sweep.load(path.stem) == sweep.load(str(path))


def test_figure19_is_the_papers_set_up() -> None:
    axes = sweep.load("figure19").tables["swap"]
    assert axes.model[0] == "opt-13b"
    assert (axes.dtype, axes.seq_lens, axes.layouts) == ("float16", (256,), ("layer_split",))
    assert axes.block_sizes == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert axes.pool_tokens == 12 * 1024
    assert {"memcpy_loop", "contiguous"} == set(axes.methods)
    assert axes.placements == ("scattered",)


def test_what_is_left_out_comes_from_quick(tmp_path: Path) -> None:
    mine, quick = sweep.load(written(tmp_path, "seq_lens = [7]")), sweep.load("quick")
    assert mine.tables["swap"].seq_lens == (7,)
    assert mine.tables["swap"].block_sizes == quick.tables["swap"].block_sizes


def test_precedence_is_command_line_table_file(tmp_path: Path) -> None:
    text = "layers = 4\n[recompute]\nlayers = 2\n"
    path = written(tmp_path, text)
    plain, overridden = sweep.load(path), sweep.load(path, {"layers": 1, "model": "qwen3-8b"})
    assert (plain.tables["swap"].layers, plain.tables["recompute"].layers) == (4, 2)
    assert {axes.layers for axes in overridden.tables.values()} == {1}
    assert {axes.model for axes in overridden.tables.values()} == {("qwen3-8b",)}


def test_as_dict_is_plain() -> None:
    values = sweep.load("cpu").as_dict()
    assert values["name"] == "cpu"
    assert values["recompute"]["layers"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sizes = [1]", r"unknown key 'sizes'; known: model, dtype"),
        ("[swap]\nsizes = [1]", r"unknown key 'sizes'"),
        ("[copying]\nlayers = 1", r"unknown table \[copying\]; known: swap, recompute"),
        ("block_sizes = [0]", r"block_sizes: 0 is not a whole number of 1 or more"),
        ("block_sizes = [true]", r"block_sizes: True is not"),
        ("block_sizes = []", r"an empty list leaves nothing"),
        ("block_sizes = [4, 4]", r"names something twice"),
        ("seq_lens = ['long']", r"seq_lens: 'long' is not a whole number"),
        (
            "layouts = ['diagonal']",
            r"layouts: unknown layout 'diagonal'; known: layer_split, layer_joined, cross_layer",
        ),
        ("methods = ['dma']", r"methods: unknown copy method 'dma'; known: contiguous"),
        ("placements = ['random']", r"placements: unknown placement 'random'; known"),
        ("placements = [3]", r"placements: "),
        ("model = 'gpt-5'", r"model: unknown model 'gpt-5'; known: llama-3-8b"),
        ("dtype = 'int4'", r"dtype: unknown dtype 'int4'; known: float64"),
        ("budget_s = 0", r"budget_s: 0 is not a number of seconds"),
        ("budget_s = nan", r"budget_s: nan is not"),
        ("layers = -1", r"layers: -1 is not a whole number of 0 or more"),
        ("model = ", r"mine.toml: not a TOML file"),
    ],
)
def test_bad_sweeps_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SweepError, match=message) as refusal:
        sweep.load(written(tmp_path, text))
    assert "\n" not in str(refusal.value)


def test_unknown_sweeps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="known: cpu, figure19, full, quick, or a path"):
        sweep.load("fast")
    with pytest.raises(SweepError, match="no such file"):
        sweep.load(str(tmp_path / "absent.toml"))
