"""Rows of fragments of no model load beside swaps and recomputes, and change nothing that is said of those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.cost_model import fit_copies
from analysis.figure19 import panels
from analysis.load import BadFile, load
from analysis.measured import machines
from analysis.scaling import to_full_model
from tests.analysis.synthetic import copy_case, copy_row, document, figure19_document, write

COPIES = (
    copy_case(),
    copy_case("swap_out", fragment_bytes=32768),
    copy_case("both", "contiguous"),
    copy_case("both", "contiguous", repeat=1),
)


def mixed() -> dict[str, Any]:
    """Figure 19 of a model of which one layer was timed, and copies."""
    content = figure19_document(layers=1)
    first = len(content["benchmarks"])
    content["benchmarks"] += [copy_row(case, [0.001, 0.002], first + i) for i, case in enumerate(COPIES)]
    for row in content["benchmarks"][:first]:
        row["extra_info"]["case"] |= dict.fromkeys(("fragment_bytes", "fragments", "repeat"))
    return content


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    return load(write(tmp_path, mixed()))


def test_what_does_not_apply_is_null_and_sizes_stay_whole_numbers(frame: pd.DataFrame) -> None:
    copies = frame[frame["recovery"] == "copy"]
    assert len(copies) == len(COPIES)
    assert copies[["model", "layers_timed", "seq_len", "batch", "block_size"]].isna().all(axis=None)
    assert copies["case_fragment_bytes"].tolist() == [4096, 32768, 4096, 4096]
    swaps = frame[frame["recovery"] == "swap"]
    assert f"{swaps['layers_timed'].iloc[0]} of {swaps['seq_len'].iloc[0]}" == "1 of 256"
    assert frame["case_id"].is_unique  # the ceiling measured again is a case of its own


def test_they_are_never_scaled_and_figure19_does_not_see_them(frame: pd.DataFrame, tmp_path: Path) -> None:
    whole, dropped = to_full_model(frame)
    assert dropped.empty
    assert whole.loc[whole["recovery"] == "copy", "scaled"].tolist() == [False] * len(COPIES)
    assert whole.loc[whole["recovery"] == "recompute", "scaled"].all()
    alone = load(write(tmp_path, figure19_document(layers=1), "alone.json"))
    (with_copies,), notes = panels(frame)
    (without,), _ = panels(alone)
    assert notes == []
    assert [size for size, _ in with_copies.pairs] == [size for size, _ in without.pairs]
    assert [ratio.value for _, ratio in with_copies.pairs] == [ratio.value for _, ratio in without.pairs]
    assert (with_copies.seq_len, with_copies.batch) == (256, 1)


def test_claims_and_fits_take_them(frame: pd.DataFrame) -> None:
    (machine,) = machines(frame)
    assert len(machine.copies) == len(COPIES)
    assert len(machine.plain("swap")) == 18
    assert any(key.direction == "both" for key in fit_copies(frame, resamples=0))


def test_a_file_of_copies_only(tmp_path: Path) -> None:
    content = document([copy_row(case, [0.001], i) for i, case in enumerate(COPIES)])
    assert to_full_model(load(write(tmp_path, content)))[0]["bytes"].tolist() == [2 << 20, 16 << 20, 4 << 20, 4 << 20]


@pytest.mark.parametrize(
    ("place", "axis", "sentence"),
    [
        (-1, "fragments", "recovery 'copy' without fragments"),
        (-1, "direction", "recovery 'copy' without direction"),
        (0, "layers_timed", "recovery 'recompute' without layers_timed"),
        (1, "model", "recovery 'swap' without model"),
        (1, "seq_len", "recovery 'swap' without seq_len"),
    ],
)
def test_what_must_not_be_null(tmp_path: Path, place: int, axis: str, sentence: str) -> None:
    content = mixed()
    content["benchmarks"][place]["extra_info"]["case"][axis] = None
    with pytest.raises(BadFile, match=sentence):
        load(write(tmp_path, content))
