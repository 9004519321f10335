"""The command line: exit codes, one line of refusal, tables of 100 columns, and JSON with nothing beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from analysis.__main__ import app
from analysis.contract import SCHEMA_PATH
from tests.analysis.synthetic import CPU, Planted, case, figure19_document, write


def run(*arguments: object) -> Result:
    """`python -m analysis` with these arguments; a traceback fails the test."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refusal(*arguments: object) -> str:
    """The one line on stderr of a run that ends with 2."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr.strip()


def test_figure19_draws_and_prints(tmp_path: Path) -> None:
    result = run("figure19", write(tmp_path, figure19_document()), "--out", f"{tmp_path}/figures/")
    assert result.exit_code == 0
    assert result.stderr == ""
    for kind in ("png", "svg"):
        assert (tmp_path / "figures" / f"figure19.{kind}").stat().st_size > 10_000
    for fact in (
        "NVIDIA A100-SXM4-40GB",
        "opt-13b",
        "Crossing of recompute and swap in+out: at ",
        "A: recompute <= 20 %",
        "x 0.9",
        "does not hold",
    ):
        assert fact in result.stdout
    assert "CPU" not in result.stdout


@pytest.mark.parametrize("recompute_s", [23e-6, 123.4567])
def test_the_table_is_whole_at_100_columns(tmp_path: Path, recompute_s: float) -> None:
    planted = Planted(recompute_s=recompute_s, bandwidth=209e6 / recompute_s, overhead_s=1e-9)
    result = run("figure19", write(tmp_path, figure19_document(planted)), "--out", tmp_path / "f")
    table = result.stdout.split("written:")[0].split("(measured)")[1]
    assert max(map(len, table.splitlines())) <= 100
    assert "…" not in table
    for column in ("block", "swap out", "swap in", "swap in+out", "recompute"):
        assert column in table
    assert len(re.findall(r"\d-\d", table)) == 9 * 5 + 4  # an interval in every cell, none broken


@pytest.mark.parametrize(
    ("out", "stem"), [("plain", "plain"), ("plain.png", "plain"), ("folder/", "folder/figure19"), (".", "figure19")]
)
def test_out_is_a_folder_or_a_stem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, stem: str) -> None:
    path = write(tmp_path, figure19_document(block_sizes=(1, 16), rounds=1))
    monkeypatch.chdir(tmp_path)
    assert run("figure19", path, "--out", out).exit_code == 0
    assert (tmp_path / f"{stem}.png").exists()


def test_json_is_the_table_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path, figure19_document(Planted(noise=0)))
    result = run("figure19", f"a100={path}", "--json", "--out", tmp_path / "f")
    values: dict[str, Any] = json.loads(result.stdout)
    (panel,) = values["panels"]
    assert (panel["machine"], panel["gpu_figure"], panel["origin"]) == ("a100", True, "measured")
    assert panel["points"][0]["recompute_ms"]["value"] == pytest.approx(34.6)
    assert panel["points"][0]["recompute_ms"]["interval"] == pytest.approx([34.6, 34.6])
    assert [(line["name"], line["factor"]) for line in panel["readings"]] == [
        ("A", 1.0),
        ("A", 0.9),
        ("B", 1.0),
        ("B", 0.9),
    ]
    assert values["files"] == [str(tmp_path / "f.png"), str(tmp_path / "f.svg")]


def test_a_cpu_file_is_drawn_and_says_so(tmp_path: Path) -> None:
    result = run("figure19", write(tmp_path, figure19_document(machine=CPU, layers=1)), "--out", tmp_path / "f")
    assert result.exit_code == 0
    assert result.stdout.count("*** CPU, NOT A GPU FIGURE ***") == 2
    assert "1 of 40 layers timed, scaled to all" in result.stdout


def test_selection_reaches_the_figure(tmp_path: Path) -> None:
    path = write(tmp_path, figure19_document(models=("opt-13b", "llama-3-8b"), seq_lens=(256, 512)))
    chosen = run("figure19", path, "--model", "llama-3-8b", "--seq-len", 512, "--json", "--out", tmp_path / "f")
    (panel,) = json.loads(chosen.stdout)["panels"]
    assert (panel["model"], panel["seq_len"]) == ("llama-3-8b", 512)
    assert "no swap rows with method memcpy_batch" in refusal("figure19", path, "--method", "memcpy_batch")


def test_suspect_rows_are_marked_in_the_table(tmp_path: Path) -> None:
    content = figure19_document(Planted(noise=0))
    content["benchmarks"][0]["extra_info"]["suspect"] = ["clocks held down"]
    result = run("figure19", write(tmp_path, content), "--out", tmp_path / "f")
    assert "34.60*" in result.stdout
    assert "* suspect, recompute: clocks held down" in result.stdout


def test_bad_input_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "figures"
    assert "no such file" in refusal("figure19", tmp_path / "none.json", "--out", f"{out}/")
    assert "empty file: benchmarks were disabled" in refusal("figure19", write(tmp_path, ""), "--out", f"{out}/")
    content = figure19_document()
    content["benchmarks"] = content["benchmarks"][1:]
    content["skipped"] = [{"case": case(), "reason": "out of memory"}]
    line = refusal("figure19", write(tmp_path, content), "--out", f"{out}/")
    assert line.startswith("no recompute rows; Figure 19 needs")
    assert "(1 cases were skipped or failed, the first: out of memory)" in line
    assert not out.exists()


def test_a_file_of_skipped_cases_only(tmp_path: Path) -> None:
    content = figure19_document()
    content["benchmarks"] = []
    assert refusal("figure19", write(tmp_path, content)).startswith("no swap rows")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    path = write(tmp_path, figure19_document(block_sizes=(1, 16), rounds=1))
    assert refusal("figure19", path, "--out", path / "f").startswith(str(path))


def test_schema_prints_a_line_a_file(tmp_path: Path) -> None:
    content = figure19_document()
    content["skipped"] = [{"case": case(), "reason": "no CUDA"}]
    result = run(
        "schema", f"mine={write(tmp_path, content)}", write(tmp_path, figure19_document(machine=CPU), "b.json")
    )
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{tmp_path}/a.json: 19 rows, 0 suspect, 1 skipped, 0 failed; "
        "NVIDIA A100-SXM4-40GB, PCIe 4 x16, driver 580.65 (mine)",
        f"{tmp_path}/b.json: 19 rows, 0 suspect, 0 skipped, 0 failed; CPU: Xeon 2.2 GHz",
    ]


def test_schema_names_the_bad_file_and_goes_on(tmp_path: Path) -> None:
    bad, good = write(tmp_path, "{", "bad.json"), write(tmp_path, figure19_document(), "good.json")
    result = run("schema", bad, good)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{bad}: cut short")
    assert result.stderr.count("\n") == 1
    assert result.stdout.startswith(f"{good}: 19 rows")
    assert "no file matches" in refusal("schema", f"{tmp_path}/*.nothing")


def test_all_of_results_is_all_but_the_contract() -> None:
    folder = SCHEMA_PATH.parent
    result = run("schema", f"{folder}/cpu*.json", SCHEMA_PATH)
    assert result.exit_code == 0
    assert "schema.json" not in result.stdout
    assert "not a pytest-benchmark file" in refusal("schema", SCHEMA_PATH)
