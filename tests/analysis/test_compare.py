"""Cases of two groups joined on the case: ratios with intervals, verdicts, and the exit code a script waits for."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.comparison import Compared, compare_groups
from analysis.intervals import Estimate
from analysis.load import load
from tests.analysis.synthetic import CPU, Planted, copy_case, copy_row, figure19_document, write
from tests.analysis.test_cli import refusal, run

BLOCKS = (1, 16, 256)


def content(session: str, **planted: float) -> dict[str, Any]:
    return figure19_document(Planted(**planted), block_sizes=BLOCKS, session=session)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    """Copies cost 1.5 times as much a descriptor after the change; recompute is as before."""
    before = write(tmp_path, content("s1"), "a.json")
    after = write(tmp_path, content("s-2", overhead_s=4.5e-6), "b.json")
    return f"before={before}", f"after={after}"


def pairs(*labels: str) -> dict[tuple[str, int | None], Compared]:
    """The pairs by direction (or recovery) and block size."""
    found = compare_groups(load(labels))
    cases = [(json.loads(entry.case_id), entry) for entry in found.pairs]
    return {(case.get("direction", case["recovery"]), case.get("block_size")): entry for case, entry in cases}


def test_ratios_and_verdicts_are_the_planted_ones(pair: tuple[str, str]) -> None:
    found = pairs(*pair)
    assert len(found) == 2 * len(BLOCKS) + 1
    before, after = Planted(), Planted(overhead_s=4.5e-6)
    for size in BLOCKS:
        seconds = [machine.swap_s("opt-13b", "layer_split", size, 256, 40) for machine in (before, after)]
        for direction in ("swap_in", "swap_out"):
            assert found[direction, size].ratio.value == pytest.approx(seconds[1] / seconds[0], rel=0.02)
    assert found["swap_in", 1].verdict == "slower"
    assert found["recompute", None].verdict == "same"
    assert pairs(*reversed(pair))["swap_in", 1].verdict == "faster"


@pytest.mark.parametrize(
    ("low", "high", "verdict", "fails"),
    [
        (1.2, 1.3, "slower", True),
        (1.06, 1.08, "slower", False),
        (0.99, 1.01, "same", False),
        (1.01, 1.04, "same", False),
        (0.7, 0.8, "faster", False),
        (0.8, 1.6, "ambiguous", False),
    ],
)
def test_a_verdict_is_of_the_whole_interval(low: float, high: float, verdict: str, fails: bool) -> None:
    other = Estimate((low + high) / 2, np.linspace(low, high, 200))
    entry = Compared("id", "case", "swap", "a", "b", Estimate(1.0, np.ones(200)), other, False)
    assert entry.verdict == verdict
    assert entry.fails(1.1) is fails
    assert Compared("id", "case", "swap", "a", "b", Estimate(1.0), other, False).verdict == "ambiguous"


def test_exit_code_is_1_only_past_the_limit(pair: tuple[str, str]) -> None:
    slow = run("compare", *pair)
    assert slow.exit_code == 1
    assert slow.stderr == ""
    assert "past 1.1" in slow.stdout
    assert "recompute 256 tokens opt-13b" in " ".join(slow.stdout.split())
    assert "…" not in slow.stdout
    assert max(len(line) for line in slow.stdout.splitlines() if line.startswith(" ")) <= 100
    assert run("compare", *pair, "--fail-over", 2).exit_code == 0
    assert run("compare", *pair, "--base", "after").exit_code == 0


def test_json(pair: tuple[str, str], tmp_path: Path) -> None:
    result = run("compare", *pair, "--json", "--out", f"{tmp_path}/f/")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert found["failed"] == sum(case["fails"] for case in found["cases"]) > 0
    assert (found["base"], {case["recovery"] for case in found["cases"]}) == ("before", {"swap", "recompute"})
    assert all((tmp_path / "f" / Path(path).name).exists() for path in found["files"])


def test_three_groups_copies_and_cases_of_one_side_only(pair: tuple[str, str], tmp_path: Path) -> None:
    third = copy.deepcopy(content("s-three"))
    third["benchmarks"] = third["benchmarks"][:3]
    path = write(tmp_path, third, "c.json")
    found = compare_groups(load([*pair, f"third={path}"]))
    assert found.others == ("after", "third")
    assert any("4 cases of before and 0 of third have no counterpart" in note for note in found.notes)
    rows = [copy_row(copy_case("both"), [0.001] * 3, 90), copy_row(copy_case(), [0.001] * 3, 91)]
    files = []
    for name in ("d", "e"):
        both = content(name)
        both["benchmarks"] += [row | {"extra_info": row["extra_info"] | {"session": name}} for row in rows]
        files.append(f"{name}={write(tmp_path, both, f'{name}.json')}")
    cases = [entry.case for entry in compare_groups(load(files)).pairs]
    assert "copy both memcpy_loop packed 512 x 4,096 B" in cases


def test_refusals(pair: tuple[str, str], tmp_path: Path) -> None:
    assert refusal("compare", pair[0]).startswith("one group only: before; label the files")
    assert refusal("compare", *pair, "--base", "x") == "no group 'x'; there are: before, after"
    assert "Invalid value for '--fail-over'" in refusal("compare", *pair, "--fail-over", 0.5)
    cpu = write(tmp_path, figure19_document(machine=CPU, session="cpu"), "cpu.json")
    assert "cpu is a CPU beside GPUs; --with-cpu" in refusal("compare", pair[0], f"cpu={cpu}")
    other = write(tmp_path, figure19_document(models=("llama-3-8b",), session="other"), "o.json")
    assert refusal("compare", pair[0], f"o={other}") == "no case in common: before and o"
