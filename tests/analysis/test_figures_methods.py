from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis.__main__ import app
from analysis.contract import NothingToDraw
from analysis.figures_methods import best_methods, draw_best_methods
from tests.analysis.synthetic import copy_case, copy_row, document, write

RATES = {"memcpy_loop": 3.5e-6, "memcpy_batch": 0.5e-6, "direct_kernel": 0.2e-6}


def grid(backend: str = "cuda") -> pd.DataFrame:
    """Small fragments are cheapest by the kernel, large ones by the batch, whose bytes cross faster."""
    records = []
    for direction, size, count, (method, per_copy) in product(
        ("swap_in", "swap_out"), (4096, 32768, 2097152), (64, 1024), RATES.items()
    ):
        rate = 40e9 if method == "direct_kernel" else 50e9
        wall = count * max(per_copy, size / rate)
        case = {"recovery": "copy", "direction": direction, "method": method, "placement": "packed"}
        fields = {"fragment_bytes": size, "fragments": count, "bytes": size * count, "wall_median_s": wall}
        facts = {"verified": True, "ceiling_gbps": 50.0, "backend": backend, "machine": f"a {backend}"}
        records.append(case | fields | facts)
    return pd.DataFrame(records)


def test_the_fastest_of_each_point_is_found() -> None:
    best = best_methods(grid()).set_index(["direction", "fragment_bytes", "fragments"])["method"]
    assert best.loc["swap_in", 4096, 64] == "direct_kernel"
    assert best.loc["swap_out", 2097152, 1024] in ("memcpy_batch", "memcpy_loop")
    assert len(best) == 12


def test_bytes_that_did_not_verify_win_nothing() -> None:
    rows = grid()
    rows.loc[rows["method"] == "direct_kernel", "verified"] = False
    assert "direct_kernel" not in set(best_methods(rows)["method"])


def test_cells_say_method_and_share_of_the_ceiling() -> None:
    figure = draw_best_methods(grid())
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "D 41%" in texts
    assert {axes.get_title().splitlines()[-1] for axes in figure.axes} == {
        "swap_in, packed (measured)",
        "swap_out, packed (measured)",
    }
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert any(label.startswith("D: direct_kernel") for label in labels)


def test_a_cpu_is_left_out_beside_a_gpu_and_marked_alone() -> None:
    both = pd.concat([grid(), grid("cpu")])
    assert set(best_methods(both)["machine"]) == {"a cuda"}
    assert any(text.get_text() == "CPU" for text in draw_best_methods(grid("cpu")).axes[0].texts)


def test_no_copies_is_said() -> None:
    with pytest.raises(NothingToDraw, match=r"pytest bench/bench_copy\.py"):
        best_methods(grid().assign(recovery="swap"))


def test_the_command_draws_and_tells(tmp_path: Path) -> None:
    cases = [copy_case(way, method) for way in ("swap_in", "swap_out") for method in ("memcpy_loop", "direct_kernel")]
    content = document([copy_row(case, [0.001, 0.002], order) for order, case in enumerate(cases)])
    result = CliRunner().invoke(app, ["methods", str(write(tmp_path, content)), "--out", f"{tmp_path}/"])
    assert result.exit_code == 0, result.output
    assert {found.name for found in tmp_path.glob("*.png")} == {"rates.png", "methods.png"}
    assert "The fastest method (measured)" in result.output
