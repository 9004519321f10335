"""Each command on synthetic files, the CPU file and no file: tables of 100 columns, JSON alone, one line of refusal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.contract import SCHEMA_PATH
from analysis.grid import Grid, merged
from tests.analysis import synthetic
from tests.analysis.planted import Machine
from tests.analysis.synthetic import document, figure19_document, write
from tests.analysis.test_cli import refusal, run

CPU_FILE = SCHEMA_PATH.parent / "cpu-epyc-2-cores.json"
LENGTHS, BLOCKS = (256, 512, 1024, 4096, 8192), (4, 16, 256)
MACHINE = Machine()


def fitted_document() -> dict[str, Any]:
    """A machine of known constants, with lengths enough for fits."""
    rng, rows = np.random.default_rng(1), []
    for tokens in LENGTHS:
        prefill = MACHINE.prefill_s(tokens) * (1 + 0.01 * rng.standard_normal(9))
        rows.append(synthetic.row(synthetic.case(MACHINE.model, seq_len=tokens), prefill, len(rows)))
        for size in BLOCKS:
            copies = MACHINE.shape.fragments_per_block(MACHINE.layout) * tokens // size
            nbytes = tokens * MACHINE.shape.kv_bytes_per_token("float16")
            work = {"bytes": nbytes, "descriptors": copies, "fragment_bytes": nbytes // copies}
            how = {"method": "memcpy_loop", "layout": MACHINE.layout, "placement": "scattered", "block_size": size}
            for way in ("swap_out", "swap_in"):
                wall = MACHINE.swap_s(tokens, size) * (1 + 0.01 * rng.standard_normal(9))
                clocks = {"wall_s": list(wall), "device_s": list(wall), "issue_s": [MACHINE.issue_s(copies)] * 9}
                case = synthetic.case(MACHINE.model, seq_len=tokens, recovery="swap", direction=way, **how)
                more = {"work": work | {"descriptors_merged": copies, "flops": None}, "clocks": clocks}
                rows.append(synthetic.row(case, wall, len(rows), **more))
    return document(rows)


@pytest.fixture(autouse=True)
def _quick_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn but not rendered: two pictures a command take seconds."""

    def save(figure: object, stem: Path) -> list[Path]:
        stem.parent.mkdir(parents=True, exist_ok=True)
        return [write(stem.parent, "picture", f"{stem.name}.{kind}") for kind in ("png", "svg")]

    monkeypatch.setattr("analysis.figures.save", save)
    monkeypatch.setattr("analysis.commands.pictures.svg", lambda figure, name: b"<svg/>")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("fitted"), fitted_document())


def tables(text: str) -> str:
    """The part of the output that is tables: lines of notes and paths may be longer than 100 columns."""
    return "\n".join(line for line in text.splitlines() if line.startswith(" "))


def whole(text: str) -> None:
    """Nothing is cut, and tables fit 100 columns."""
    assert "…" not in text
    assert max(map(len, tables(text).splitlines()), default=0) <= 100


def values(*arguments: object) -> Any:
    """What a command prints with --json, and nothing else."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_help_is_fast_because_nothing_heavy_is_imported() -> None:
    code = "import sys, analysis.__main__; print(sorted({'torch', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    for command in ("figure19", "crossover", "claims", "recoveries", "compare", "predict", "report", "shape", "schema"):
        assert "--json" in run(command, "--help").stdout


def test_crossover_from_fits_finds_the_planted_tie(fitted: Path, tmp_path: Path) -> None:
    chosen = ("--trip", "round-trip", "--block-size", 16, "--seq-len", 1024)
    found = values("crossover", fitted, *chosen, "--out", tmp_path / "f")
    (setting,) = found["settings"]
    assert (setting["kind"], setting["refusal"], setting["gpu_figure"]) == ("fit", "", True)
    (length,) = (tie for tie in setting["ties"] if tie["question"] == "length")
    for crossing in length["crossings"]:
        tokens = crossing["at"]
        assert 2 * MACHINE.swap_s(tokens, 16) == pytest.approx(MACHINE.prefill_s(tokens), rel=0.02)
    assert length["crossings"]
    assert {tie["question"] for tie in setting["ties"]} == {"length", "block size", "link rate", "preemptions", "batch"}
    assert {row["rule"] for row in setting["regret"]} == {"Mooncake", "InferCept", "swap above 1024 tokens"}
    assert found["files"] == [str(tmp_path / "f.png"), str(tmp_path / "f.svg")]


def test_crossover_from_medians_where_lengths_are_few(tmp_path: Path) -> None:
    path = write(tmp_path, figure19_document(seq_lens=(256, 512)))
    result = run("crossover", path, "--out", tmp_path / "f")
    assert "no constants: prefill: 2 different lengths; at least 4 are needed" in " ".join(result.stdout.split())
    assert "CPU" not in result.stdout
    whole(result.stdout)
    (tie,) = (
        tie
        for tie in values("crossover", path, "--trip", "round-trip", "--out", tmp_path / "f")["settings"][0]["ties"]
        if (tie["question"], tie["tokens"]) == ("block size", 256)
    )
    low, high = tie["crossings"][0]["interval"]
    assert low <= tie["crossings"][0]["at"] <= high
    assert not (tmp_path / "f.png").exists()


def test_crossover_of_published_constants_needs_no_file(tmp_path: Path) -> None:
    arguments = ("--published", "--model", "llama-3-8b", "--layout", "layer_split", "--seq-len", 4096)
    result = run("crossover", *arguments, "--block-size", 16, "--out", tmp_path / "f")
    assert result.exit_code == 0
    assert "H100-SXM5-80GB" in result.stdout
    assert "(published)" in result.stdout
    whole(result.stdout)
    assert refusal("crossover").startswith("no FILES; name result files, or --published")
    assert "there are: models" in refusal("crossover", "--published", "--model", "gpt-2")


@pytest.mark.parametrize("command", ["crossover", "claims", "report", "figure19"])
def test_a_cpu_file_says_so(command: str, tmp_path: Path) -> None:
    out = () if command == "claims" else ("--out", tmp_path / "f")
    result = run(command, CPU_FILE, *out)
    assert result.exit_code == 0
    assert "CPU, NOT A GPU" in result.stdout
    whole(result.stdout)


def test_claims_with_and_without_files(fitted: Path) -> None:
    alone = values("claims")["verdicts"]
    assert {verdict["origin"].split(" ")[0] for verdict in alone} >= {"arithmetic", "published", "none"}
    bare = values("claims", "--no-published")["verdicts"]
    assert not any(verdict["origin"].startswith("published") for verdict in bare)
    assert {verdict["claim"] for verdict in bare} == {verdict["claim"] for verdict in alone}
    own = values("claims", f"mine={fitted}", "--claim", "recompute-flat-over-blocks", "--no-published")["verdicts"]
    assert {verdict["machine"] for verdict in own if verdict["origin"].startswith("measured")} <= {"mine"}
    assert refusal("claims", "--claim", "none").startswith("unknown claim 'none'; known: ")


def test_predict(tmp_path: Path) -> None:
    result = run("predict", "llama-3-8b", "--gpu", "A100-40GB", "--seq-len", 4096)
    assert "modelled, not measured" in result.stdout
    assert "31.5 GB/s x" in result.stdout
    whole(result.stdout)
    found = values("predict", "llama-3-70b-tp8", CPU_FILE, "--block-size", 16, "--block-size", 32)
    assert found["predictions"][0]["model"] == "llama-3-70b-tp8"
    assert {entry["block_size"] for entry in found["predictions"]} == {16, 32}
    assert found["accuracy"][-1]["what"] == "all"
    assert "unknown GPU 'Voodoo'; known: " in refusal("predict", "opt-13b", "--gpu", "Voodoo")


def test_shape_is_the_arithmetic_of_the_paper() -> None:
    found = values("shape", "opt-13b", "--dtype", "float16")
    assert found["kv_bytes_per_token"] == 819_200  # Kwon et al., section 3: 800 KB
    assert found["layouts"]["layer_split"]["fragment_bytes"]["16"] == 163_840
    assert values("shape", "llama-3-70b", "--tp", 8)["kv_bytes_per_token"] == 40_960
    whole(run("shape", "llama-3-8b").stdout)


def test_figure19_of_published_machines(tmp_path: Path) -> None:
    found = values("figure19", "--published", "--model", "opt-13b", "--out", tmp_path / "f")
    assert {panel["model"] for panel in found["panels"]} == {"opt-13b"}
    assert "modelled" in found["panels"][0]["points"][0]["origins"].values()
    path = write(tmp_path, figure19_document(block_sizes=(1, 16)))
    both = values("figure19", path, "--published", "--model", "opt-13b", "--out", tmp_path / "f")
    assert len(both["panels"]) == len(found["panels"]) + 1


def test_report_is_one_file(tmp_path: Path) -> None:
    path = write(tmp_path, figure19_document(block_sizes=(1, 16)))
    out = tmp_path / "new" / "r.html"
    written = values("report", path, "-o", out)
    assert (written["report"], written["files"], written["panels"]) == (str(out), [str(out)], 1)
    assert list(out.parent.iterdir()) == [out]
    assert "a folder; --out names the page" in refusal("report", path, "-o", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("crossover", "none.json"), "none.json: no such file"),
        (("claims", "*.nothing"), "*.nothing: no file matches"),
        (("report", "none.json", "-o", "r.html"), "none.json: no such file"),
        (("report", str(CPU_FILE)), "Missing option '--out'"),
        (("predict", "gpt-5"), "unknown model 'gpt-5'; known: llama-3-8b"),
        (("predict", "opt-13b", "--layout", "round"), "unknown layout 'round'; known: layer_split"),
        (("shape", "opt-13b", "--tp", "3"), "opt-13b: heads 40 does not divide over 3 ranks"),
        (("shape", "opt-13b", "--dtype", "int3"), "unknown dtype 'int3'; known: float64"),
        (("shape", "opt-13b", "--block-size", "0"), "Invalid value for '--block-size'"),
        (("crossover", str(CPU_FILE), "--method", "teleport"), "no swap rows with method teleport; there are: "),
        (("figure19",), "no FILES; name result files, or --published"),
        (("fly",), "No such command 'fly'"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refusal(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_rows_that_differ_in_one_column_are_merged_and_markdown_is_escaped() -> None:
    rows = [("1", "x", "a"), ("2", "x", "a"), ("1", "y", "a"), ("2", "y", "a"), ("3", "x", "b")]
    assert merged(rows, ("n", "l", "answer"), ("n", "l")) == (("1, 2", "x, y", "a"), ("3", "x", "b"))
    text = Grid("T", ("a", "b"), (("1|2", "3*\n4"),), ("note",), numbers=("b",)).markdown()
    assert text == "**T**\n\n| a | b |\n| --- | ---: |\n| 1\\|2 | 3\\*<br>4 |\n\n- note"
