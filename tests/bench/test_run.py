"""The bench as its users run it, on a CPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.running import ROOT, bench, each_run, run
from tests.tiny_model import SWEEP


def sweep_file(folder: Path, text: str = SWEEP) -> str:
    path = folder / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """Terminal and JSON of one run whose result folder did not exist."""
    folder = tmp_path_factory.mktemp("run")
    path = folder / "not" / "there" / "yet.json"
    done = bench("bench/", f"--sweep={sweep_file(folder)}", f"--benchmark-json={path}", "--layers=2")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(path.read_text(encoding="utf-8"))


def test_the_file_keeps_the_contract(finished: tuple[str, dict[str, Any]]) -> None:
    schema = json.loads((ROOT / "results" / "schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(finished[1])
    assert "UNSERIALIZABLE" not in json.dumps(finished[1]["benchmarks"])
    json.dumps(finished[1], allow_nan=False)


def test_every_case_left_a_row(finished: tuple[str, dict[str, Any]]) -> None:
    output = finished[1]
    rows = [entry["extra_info"] for entry in output["benchmarks"]]
    swaps = 2 * 2 * (2 * 2 * 2 + 1)  # lengths x directions x (methods x layouts x block sizes, and the ceiling)
    copies = 3 * (2 + 2)  # directions x (methods, and the ceiling before and after)
    assert len(rows) == swaps + copies + 2
    assert output["skipped"] == output["failed"] == []
    assert sorted(row["order"] for row in rows) == list(range(len(rows)))
    assert {row["session"] for row in rows} == {output["session"]["id"]}


def test_rows_say_what_was_done(finished: tuple[str, dict[str, Any]]) -> None:
    for entry in finished[1]["benchmarks"]:
        row = entry["extra_info"]
        case, work = row["case"], row["work"]
        assert row["clocks"]["wall_s"] == entry["stats"]["data"]
        if case["recovery"] == "copy":
            assert row["verified"] is True
            assert work["bytes"] == 8 * 64 * (2 if case["direction"] == "both" else 1)
            assert work["fragment_bytes"] == 64
            continue
        assert (case["layers_timed"], case["layers_model"]) == (2, 4)
        if case["recovery"] == "swap":
            assert row["verified"] is True
            assert work["bytes"] == case["seq_len"] * 2 * 2 * 2 * 16 * 4
            assert work["fragment_bytes"] * work["descriptors"] == work["bytes"]
            assert row["detail"]["ceiling_gbps"] is not None or case["method"] == "contiguous"
        else:
            assert work["flops"] > 0
            assert (
                row["detail"]["attention_backend"] == "FLASH_ATTENTION+REPEATED_KV"
                or row["detail"]["attention_backend"]
            )
            assert row["detail"]["outside_layers_s"] > 0
            assert row["detail"]["mfu"] is None


def test_the_machine_is_a_cpu_and_has_no_name(finished: tuple[str, dict[str, Any]]) -> None:
    machine = finished[1]["machine_info"]
    assert (machine["backend"], machine["gpu"]) == ("cpu", None)
    assert "node" not in machine


def test_each_case_prints_one_line(finished: tuple[str, dict[str, Any]]) -> None:
    lines = [line for line in finished[0].splitlines() if line.startswith("[")]
    assert [int(line.split("/")[0].strip("[ ")) for line in lines] == [*range(1, len(lines) + 1)]
    assert f"/{len(lines)}, 0 left]" in lines[-1]
    assert sum("of the ceiling" in line for line in lines) == len(lines) - 9  # 4 + 3 first ceilings, 2 recomputes
    assert all(" ms " in line and ("GB/s" in line or "TFLOP/s" in line) for line in lines)
    assert f"{len(lines)} cases in" in finished[0]


NEVER_FITS = 'model = "llama-3-70b"\nseq_lens = [100000000]\nblock_sizes = [16]\n'
CANNOT_COMPUTE = SWEEP.replace("[32, 64]", "[32]").replace("float32", "float8_e4m3fn")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, Path]]:
    """Exit code, terminal and would-be JSON of runs that are refused, or that measure little."""
    folder = tmp_path_factory.mktemp("others")
    (folder / "file").write_text("")
    sweeps = {"never": NEVER_FITS, "cannot": CANNOT_COMPUTE, "tiny": SWEEP}
    for name, text in sweeps.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    runs = {
        "model": ["bench/", "--model=gpt-5"],
        "device": ["bench/", "--device=cuda"],
        "never": ["bench/", f"--sweep={folder / 'never.toml'}"],
        "cannot": ["bench/bench_recompute.py", f"--sweep={folder / 'cannot.toml'}"],
        "file/folder": ["bench/"],
        "xdist": ["bench/", "-n", "2"],
        "disabled": [
            "bench/bench_swap.py",
            f"--sweep={folder / 'tiny.toml'}",
            "--benchmark-disable",
            "-k",
            "contiguous",
        ],
    }
    paths = {name: folder / name / "out.json" for name in runs}
    commands = [[*arguments, f"--benchmark-json={paths[name]}"] for name, arguments in runs.items()]
    finished = each_run(*commands, PYTHONPATH=f"{ROOT}{os.pathsep}{folder}")
    return {name: (*done, paths[name]) for name, done in zip(runs, finished, strict=True)}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model", "ERROR: model: unknown model 'gpt-5'; known: llama-3-8b"),
        ("device", "finds no usable GPU or driver"),
        ("never", "are 32,768,000,000,000 bytes of KV cache; the device has"),
        ("file/folder", "cannot be written"),
        ("xdist", "benchmarks do not run under pytest-xdist"),
    ],
)
def test_bad_input_is_one_line_and_no_file(others: dict[str, tuple[int, str, Path]], name: str, message: str) -> None:
    code, terminal, path = others[name]
    assert code == 4
    assert sum(message in line for line in terminal.splitlines()) == 1
    assert "Traceback" not in terminal
    assert not path.exists()


def test_cases_that_cannot_run_are_kept_with_their_reason(others: dict[str, tuple[int, str, Path]]) -> None:
    code, terminal, path = others["cannot"]
    assert code == 0
    output = json.loads(path.read_text(encoding="utf-8"))
    assert output["benchmarks"] == []
    assert [entry["reason"] for entry in output["skipped"]] == [
        "no model computes in float8_e4m3fn; its KV cache can only be swapped"
    ]
    assert "SKIPPED: no model computes in float8_e4m3fn" in terminal


def test_disabled_benchmarks_run_each_case_once(others: dict[str, tuple[int, str, Path]]) -> None:
    code, terminal, path = others["disabled"]
    assert code == 0
    assert "4 passed" in terminal
    assert not path.exists()


def test_collecting_needs_no_triton_and_no_driver(tmp_path: Path) -> None:
    """A stub that refuses to be imported stands for an absent Triton."""
    (tmp_path / "triton.py").write_text("raise ImportError('no triton here')\n")
    done = run(
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "bench/",
        "tests/gpu",
        "tests/bench",
        "tests/kernels/test_triton_copy.py",
        PYTHONPATH=str(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bench_recompute[recompute/" in done.stdout
