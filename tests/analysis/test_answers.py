"""The answer of each machine and model: what wins, from where on, by how much, and what to doubt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from analysis.answers import Answer, answers
from analysis.basis import bases_of
from analysis.figure19 import Selection, panels
from analysis.load import load, load_unmeasured
from tests.analysis.synthetic import A100, CPU, Planted, case, figure19_document, write

EXACT = Planted(noise=0)
H100 = A100 | {"gpu": {"name": "NVIDIA H100", "memory_bytes": 80_000_000_000}}


def answered(tmp_path: Path, *documents: dict[str, Any], with_cpu: bool = False) -> list[Answer]:
    """What is said of these files."""
    paths = [write(tmp_path, document, f"{number}.json") for number, document in enumerate(documents)]
    frame = load(paths)
    found, _ = panels(frame, Selection((), (), (), with_cpu=with_cpu))
    return answers(frame, load_unmeasured(paths), found, bases_of(found, frame))


def test_which_wins_from_which_block_size_on_and_by_how_much(tmp_path: Path) -> None:
    [answer] = answered(tmp_path, figure19_document(EXACT, rounds=3))
    assert answer.about == "NVIDIA A100-SXM4-40GB, PCIe 4 x16, driver 580.65: opt-13b, float16"
    swap_s = 2 * EXACT.swap_s("opt-13b", "layer_split", 256, 256, 40)
    assert f"{swap_s * 1e3:.1f} [{swap_s * 1e3:.1f} to {swap_s * 1e3:.1f}] ms out and in with scattered" in answer.text
    assert "34.6 [34.6 to 34.6] ms for recompute" in answer.text
    assert f"so swap is {EXACT.recompute_s / swap_s:.2f} " in answer.text
    found = re.search(r"At 256 tokens swap wins above a block size of ([\d.]+)", answer.text)
    assert found
    # 2 (20480 / b x 3 us + 209.7 MB / 13 GB/s) = 34.6 ms; read off between 32 and 64
    assert float(found[1]) == pytest.approx(52.5, rel=0.05)
    assert answer.notes == ()


def test_recompute_may_win_everywhere(tmp_path: Path) -> None:
    [answer] = answered(tmp_path, figure19_document(Planted(recompute_s=0.005, noise=0), rounds=3))
    assert "recompute wins at every block size from 1 to 256" in answer.text
    assert "so recompute is " in answer.text


def test_4096_tokens_are_told_where_they_were_measured_and_what_holds_at_other_lengths(tmp_path: Path) -> None:
    [answer] = answered(tmp_path, figure19_document(EXACT, seq_lens=(256, 4096, 8192), rounds=3))
    assert answer.text.startswith("At 4,096 tokens ")
    assert answer.notes == ("With the best way and blocks of 256, swap wins at every length from 256 to 8,192 tokens.",)


def test_the_slowest_way_is_told_beside_the_best(tmp_path: Path) -> None:
    content = figure19_document(EXACT, rounds=3)
    faster = figure19_document(Planted(overhead_s=0, noise=0), layout="cross_layer", rounds=3)
    content["benchmarks"] += [row for row in faster["benchmarks"] if row["extra_info"]["case"]["recovery"] == "swap"]
    [answer] = answered(tmp_path, content)
    assert "with memcpy_loop, cross_layer, the best way" in answer.text
    assert answer.notes[0].startswith("With memcpy_loop, layer_split, the slowest way, swap wins above a block size of")


def test_suspect_rows_are_no_candidates_while_there_are_clean_ones(tmp_path: Path) -> None:
    content = figure19_document(EXACT, rounds=3)
    swaps = [row["extra_info"] for row in content["benchmarks"] if row["extra_info"]["case"]["recovery"] == "swap"]
    for info in swaps:
        if info["case"]["block_size"] == 256:
            info["suspect"] = ["faster than the ceiling"]
    [answer] = answered(tmp_path, content)
    assert "scattered blocks of 128" in answer.text
    assert answer.notes == ("suspect rows were no candidates for the best way",)
    for info in swaps:
        info["suspect"] = ["faster than the ceiling"]
    [answer] = answered(tmp_path, content)
    assert "scattered blocks of 256" in answer.text
    assert "suspect, swap_in: faster than the ceiling" in answer.notes


def test_a_tie_within_the_noise_is_no_clear_win(tmp_path: Path) -> None:
    tie_s = 2 * EXACT.swap_s("opt-13b", "layer_split", 256, 256, 40)
    [answer] = answered(tmp_path, figure19_document(Planted(recompute_s=tie_s, noise=0.05), block_sizes=(256,)))
    assert "wins with blocks of 256" in answer.text
    assert answer.notes == ("neither is clearly the faster: the interval of their ratio spans 1",)


def test_a_cpu_and_scaled_layers_are_told(tmp_path: Path) -> None:
    [answer] = answered(tmp_path, figure19_document(EXACT, machine=CPU, layers=1, rounds=3))
    assert "CPU, NOT A GPU FIGURE: it says nothing about a GPU" in answer.notes
    assert "swap and recompute: 1 of 40 layers timed, scaled to all" in answer.notes


def test_what_has_no_counterpart_says_why(tmp_path: Path) -> None:
    swaps = figure19_document(EXACT, machine=H100, rounds=3, session="s22")
    swaps["benchmarks"] = swaps["benchmarks"][1:]
    swaps["skipped"] = [{"case": case(), "reason": "out of memory"}]
    cpu = figure19_document(EXACT, machine=CPU, rounds=3, session="s333")
    found = answered(tmp_path, figure19_document(EXACT, rounds=3), swaps, cpu)
    assert [answer.about.split(",")[0] for answer in found] == [
        "NVIDIA A100-SXM4-40GB",
        "CPU: Xeon 2.2 GHz: opt-13b",
        "NVIDIA H100",
    ]
    assert found[1].text == "no comparison: a CPU is left out beside GPUs; --with-cpu shows it."
    assert found[2].text == "no comparison: no recompute rows (skipped: out of memory)."


def test_markdown_shows_a_label_as_it_is() -> None:
    answer = Answer("a_b*: <b>[x](y)", "swap wins.", ("1 < 2",))
    assert answer.markdown() == "- **a_b\\*: \\<b\\>\\[x\\](y)**: swap wins.\n  - 1 \\< 2"
    assert answer.lines == ["a_b*: <b>[x](y): swap wins.", "  1 < 2"]
