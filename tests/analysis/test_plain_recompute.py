"""A recompute in chunks or behind a cached prefix is no plain one: at every door its rows change no number of others.

So do rows of the recoveries between swap and recompute, which hold clocks, bytes and FLOPs of other things.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis.accuracy import compare
from analysis.claims import CLAIMS, Answer, judge
from analysis.comparison import compare_groups
from analysis.contract import NothingToDraw
from analysis.cost_model import fit_copies, fit_prefill
from analysis.figure19 import Selection, panels
from analysis.figures_generations import draw_generations
from analysis.figures_recompute import draw_recompute
from analysis.load import load, plain_recompute
from analysis.measured import machines
from analysis.published import load_published
from analysis.tables_rows import rates_grid, recompute_grid
from tests.analysis import synthetic as planted
from tests.analysis.synthetic import Planted, document, figure19_document, write

MODEL, LENGTHS = "llama-3-8b", (256, 1024, 4096, 8192, 16384)
PLAIN = figure19_document(Planted(noise=0.001), models=(MODEL,), seq_lens=LENGTHS, block_sizes=(16, 256), rounds=3)
Other = Callable[[int], dict[str, Any]]
OTHERS: dict[str, Other] = {  # a hundred times slower than anything plain
    "chunked": lambda n: planted.recompute_row(900.0, seq_len=n, dtype="float16", chunk_tokens=64),
    "cached": lambda n: planted.recompute_row(900.0, seq_len=n, dtype="float16", cached_tokens=128),
    "ridge": lambda n: planted.ridge_prefill_row(n, 900.0, dtype="float16"),
    "batching": lambda n: planted.batching_row(n, 900.0, policy="swap", dtype="float16"),
    "preemptions": lambda n: planted.preemptions_row(1, 900.0, seq_len=n, dtype="float16"),
    "hybrid": lambda n: planted.hybrid_row(1, 900.0, 900.0, None, seq_len=n, dtype="float16"),
    "interference": lambda n: planted.interference_row(900.0, 800.0, seq_len=n, dtype="float16"),
    "resume": lambda n: planted.resume_row(900.0, seq_len=n, dtype="float16"),
}


def with_rows(folder: Path, *others: Other, plain: bool = True) -> pd.DataFrame:
    """The plain file, with such rows at each of its lengths."""
    rows = [other(n) for n in LENGTHS for other in others]
    benchmarks = [*(PLAIN["benchmarks"] if plain else ()), *rows]
    return load(write(folder, document(benchmarks), f"{len(benchmarks)}.json"))


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return load_published()


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Without and with all others."""
    folder = tmp_path_factory.mktemp("rows")
    return with_rows(folder), with_rows(folder, *OTHERS.values())


Frames = tuple[pd.DataFrame, pd.DataFrame]


def test_the_mask_takes_plain_rows_alone(frames: Frames) -> None:
    plain, mixed = frames
    chosen = mixed[plain_recompute(mixed)]
    assert chosen["seq_len"].tolist() == list(LENGTHS)
    assert chosen["wall_median_s"].max() < 100
    assert plain_recompute(plain).sum() == len(LENGTHS)


def test_fits(frames: Frames) -> None:
    for fit in (fit_prefill, fit_copies):
        plain, mixed = ({str(key): one.points for key, one in fit(frame, 0).items()} for frame in frames)
        assert plain.keys() == mixed.keys()
        for key, points in plain.items():
            pd.testing.assert_frame_equal(points, mixed[key])


def test_figure_19_and_what_ties(frames: Frames) -> None:
    plain, mixed = (panels(frame, Selection())[0] for frame in frames)
    assert [panel.seq_len for panel in mixed] == list(LENGTHS)
    for one, other in zip(plain, mixed, strict=True):
        assert one.pairs[0][1].value == other.pairs[0][1].value


def test_claims(frames: Frames, published: pd.DataFrame) -> None:
    """Of claims that plain rows judge."""
    ids = ("quadratic-growth", "never-reverses", "swap-can-win-at-8k", "converge-at-large-blocks")
    claims = [replace(claim, on_record=None) for claim in CLAIMS if claim.id in ids]
    plain, mixed = ([(v.claim.id, v.verdict, v.found) for v in judge(f, published, claims)] for f in frames)
    assert plain == mixed
    assert {claim for claim, verdict, _ in plain if verdict is not Answer.NOT_TESTED} == set(ids)


def test_machines(frames: Frames) -> None:
    for frame in frames:
        [machine] = machines(frame)
        assert {str(name): len(rows) for name, rows in machine.rows.groupby("recovery")} == {"recompute": 5, "swap": 20}
        assert [n for n, _ in machine.curves[0].points] == list(LENGTHS)


def test_predictions_against_measured(frames: Frames, published: pd.DataFrame) -> None:
    plain, mixed = (compare(frame, published) for frame in frames)
    pd.testing.assert_frame_equal(plain, mixed)


def drawn(figure: Figure) -> list[Any]:
    """The points of every line."""
    return [np.asarray(line.get_xydata()).tolist() for ax in figure.axes for line in ax.lines]


@pytest.mark.parametrize("draw", [draw_recompute, draw_generations])
def test_pictures(frames: Frames, draw: Callable[[pd.DataFrame], Figure]) -> None:
    plain, mixed = (drawn(draw(frame)) for frame in frames)
    assert plain == mixed
    assert plain


def test_the_table_of_recomputes_says_how(frames: Frames) -> None:
    rows = recompute_grid(frames[1]).rows
    assert {row[5] for row in rows} == {"in one piece", "in chunks of 64", "with 128 cached"}
    assert sum(row[5] == "in one piece" for row in rows) == len(LENGTHS)


def test_the_table_of_rates_holds_copies_alone(frames: Frames) -> None:
    assert rates_grid(frames[1]).rows == rates_grid(frames[0]).rows


def test_compared_cases_keep_their_questions(tmp_path: Path) -> None:
    """Every kind of row is paired with its own, and no two cases read the same."""
    paths = [with_rows(tmp_path, *OTHERS.values()) for _ in range(2)]
    frame = pd.concat([paths[0], paths[1].assign(machine="other")])
    found = compare_groups(frame)
    assert len(found.pairs) == len(paths[0])
    assert {pair.ratio.value for pair in found.pairs} == {1}
    assert len({pair.case for pair in found.pairs}) == len(found.pairs)


def test_an_unverified_swap_is_no_comparison_while_a_ridge_needs_no_bytes(tmp_path: Path) -> None:
    rows = [planted.ridge_gemm_row(4096, 1e14), planted.row(planted.case(recovery="swap", **SWAP), [0.1], 1)]
    for row in rows:
        row["extra_info"]["verified"] = False
    one = load(write(tmp_path, document(rows)))
    found = compare_groups(pd.concat([one, one.assign(machine="other")]))
    assert [pair.case for pair in found.pairs] == ["ridge gemm, 4096 x 4096 bfloat16"]


SWAP = {"direction": "swap_in", **planted.BLOCKS}


@pytest.mark.parametrize("kind", ["chunked", "cached"])
def test_alone_they_are_no_recompute(tmp_path: Path, published: pd.DataFrame, kind: str) -> None:
    frame = with_rows(tmp_path, OTHERS[kind], plain=False)
    assert fit_prefill(frame, 0) == {}
    assert machines(frame)[0].curves == []
    with pytest.raises(NothingToDraw, match="no prefill"):
        draw_recompute(frame)
    swaps = [row for row in PLAIN["benchmarks"] if row["extra_info"]["case"]["recovery"] == "swap"]
    mixed = load(write(tmp_path, document([*swaps, *(OTHERS[kind](n) for n in LENGTHS)]), "swaps.json"))
    with pytest.raises(NothingToDraw, match="no recompute rows"):
        panels(mixed)
    [claim] = [claim for claim in CLAIMS if claim.id == "quadratic-growth"]
    assert {v.verdict for v in judge(frame, published, [replace(claim, on_record=None)])} == {Answer.NOT_TESTED}
