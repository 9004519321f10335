from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench import sweep
from bench.sweep import SWEEPS, SweepError
from kernels import shapes
from tests.kernels.hf_configs import CONFIGS, read
from tests.running import bench


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


def test_tables_of_quick_override_nothing_of_a_users_file(tmp_path: Path) -> None:
    mine = sweep.load(written(tmp_path, 'methods = ["torch_copy"]\nplacements = ["runs-2"]\nseq_lens = [7]\n'))
    for axes in mine.tables.values():
        assert (axes.methods, axes.placements, axes.seq_lens) == (("torch_copy",), ("runs-2",), (7,))
    assert mine.tables["copy"].fragment_bytes == sweep.load("quick").tables["copy"].fragment_bytes


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


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, shapes.ModelShape]:
    """The known shapes, without what the test adds to them once it is over."""
    monkeypatch.setattr(shapes, "SHAPES", dict(shapes.SHAPES))
    return shapes.SHAPES


def test_a_model_may_be_the_path_of_its_config(tmp_path: Path, known: dict[str, shapes.ModelShape]) -> None:
    shutil.copy(CONFIGS / "llama-3-8b.json", tmp_path / "mine.json")
    (tmp_path / "Their-Model").mkdir()
    shutil.copy(CONFIGS / "gpt-oss-20b.json", tmp_path / "Their-Model" / "config.json")
    paths = [str(tmp_path / "mine.json"), str(tmp_path / "Their-Model" / "config.json")]
    loaded = sweep.load(written(tmp_path, f"model = {json.dumps(paths)}"))
    assert loaded.tables["swap"].model == ("mine", "Their-Model")
    assert str(tmp_path) not in json.dumps(loaded.as_dict())
    assert known["mine"].layers == 32
    assert known["mine"].swap_only == ""
    assert known["Their-Model"].swap_only == "mixture of experts"
    assert sweep.load("cpu", {"model": paths[1]}).tables["recompute"].model == ("Their-Model",)


def test_a_config_that_says_too_little_is_refused_by_field(tmp_path: Path, known: dict[str, shapes.ModelShape]) -> None:
    config = read("llama-3-8b")
    del config["num_key_value_heads"]
    path = tmp_path / "sparse.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(SweepError, match="model: sparse: num_key_value_heads is missing"):
        sweep.load("cpu", {"model": str(path)})
    with pytest.raises(SweepError, match=r"model: .*absent.json: No such file"):
        sweep.load("cpu", {"model": str(tmp_path / "absent.json")})
    with pytest.raises(SweepError, match=r"model: deepseek-v3.2: cannot be swapped here"):
        sweep.load("cpu", {"model": str(CONFIGS / "deepseek-v3.2.json")})
    assert "sparse" not in known


def test_one_name_is_one_model(tmp_path: Path, known: dict[str, shapes.ModelShape]) -> None:
    shutil.copy(CONFIGS / "qwen3-8b.json", tmp_path / "llama-3-8b.json")
    with pytest.raises(SweepError, match="llama-3-8b is the name of another model; rename the file"):
        sweep.load("cpu", {"model": str(tmp_path / "llama-3-8b.json")})
    ours = str(CONFIGS / "llama-3-8b.json")
    assert sweep.load("cpu", {"model": ours}).tables["swap"].model == ("llama-3-8b",)
    with pytest.raises(SweepError, match="names something twice"):
        sweep.load("cpu", {"model": [ours, "llama-3-8b"]})


def test_a_run_of_what_cannot_be_computed_swaps_it_and_says_why_not(tmp_path: Path) -> None:
    config = read("deepseek-v2-lite") | {"num_hidden_layers": 3}
    (tmp_path / "Tiny-Latent").mkdir()
    (tmp_path / "Tiny-Latent" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = 'layers = 0\nseq_lens = [8]\nblock_sizes = [4]\nlayouts = ["layer_split"]\nmethods = ["memcpy_loop"]\n'
    out = tmp_path / "out.json"
    chosen = (f"--sweep={written(tmp_path, text)}", f"--model={tmp_path / 'Tiny-Latent' / 'config.json'}")
    done = bench("bench/bench_swap.py", "bench/bench_recompute.py", *chosen, f"--benchmark-json={out}")
    assert done.returncode == 0, done.stdout + done.stderr
    output = json.loads(out.read_text(encoding="utf-8"))
    rows = [entry["extra_info"] for entry in output["benchmarks"]]
    assert {row["case"]["model"] for row in rows} == {"Tiny-Latent"}
    assert {(row["work"]["descriptors"], row["work"]["fragment_bytes"]) for row in rows} == {(2 * 3, 4 * 576 * 2)}
    reasons = {entry["reason"] for entry in output["skipped"]}
    assert reasons == {"Tiny-Latent: latent attention (MLA); its KV cache can only be swapped"}
