from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.contract import BadFile
from analysis.published import (
    AS_GATHERED,
    DIRECTIONS,
    PUBLISHED_PATH,
    UNITS,
    copy_series,
    find_shape,
    find_spec,
    link_rates,
    load_published,
    load_series,
    per_copy_costs,
    prefill_series,
)
from kernels import shapes

H100 = "H100-SXM5-80GB"
LOOP = "cudaMemcpyAsync per block (DMA)"


@pytest.fixture(scope="module")
def raw() -> pd.DataFrame:
    return pd.read_csv(PUBLISHED_PATH)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return load_published()


def test_every_row_has_what_makes_it_a_fact(raw: pd.DataFrame) -> None:
    assert len(raw) == 815
    assert raw["id"].is_unique
    assert (raw["value"] > 0).all()
    assert np.isfinite(raw["value"]).all()
    for column in ("kind", "hardware", "quantity", "method", "unit", "source", "source_detail", "how_read"):
        assert (raw[column].str.strip().str.len() > 0).all(), column
    assert set(raw["unit"]) == set(UNITS)
    assert set(raw["direction"].dropna()) == set(DIRECTIONS)
    assert raw["x"].isna().equals(raw["x_name"].isna())


def test_values_are_converted_and_kept(raw: pd.DataFrame, frame: pd.DataFrame) -> None:
    assert len(frame) == len(raw)
    assert set(frame["origin"]) == {"published"}
    assert set(frame["unit"]) == {"s", "B/s", "s/B", "tok/s", "1"}
    assert frame["value_published"].equals(raw["value"])
    assert frame["id"].equals(raw["id"])
    by_id = frame.set_index("id")["value"]
    rate = raw[raw["unit"] == "GB/s"].iloc[0]
    assert by_id[rate["id"]] == pytest.approx(rate["value"] * 1e9)
    cost = raw[raw["quantity"] == "per_copy_us"].iloc[0]
    assert by_id[cost["id"]] == pytest.approx(cost["value"] * 1e-6)
    pin = raw[raw["unit"] == "s/GB"].iloc[0]
    assert by_id[pin["id"]] == pytest.approx(pin["value"] * 1e-9)


def test_no_quantity_names_a_unit_it_is_not_in(frame: pd.DataFrame) -> None:
    names = frame["quantity"].unique()
    assert not [name for name in names if "gbps" in name or "_us" in name or name.endswith("per_gb")]
    assert set(frame["unit"][frame["quantity"].str.endswith("bytes_s")]) == {"B/s"}
    assert set(frame["unit"][frame["quantity"].isin(["per_copy_s", "ttft_s", "prefill_total_s"])]) == {"s"}


def test_spreads_surround_their_value(frame: pd.DataFrame) -> None:
    known = frame[frame["low"].notna()]
    assert len(known) > 600
    assert (known["low"] <= known["value"]).all()
    assert (known["value"] <= known["high"]).all()
    words = frame[frame["spread"].isin(["about", "ambiguous", "comparable"])]
    assert len(words)
    assert words["low"].isna().all()


def test_models_are_ours_where_the_geometry_is_known(frame: pd.DataFrame) -> None:
    ours = set(frame["model"].dropna()) & (set(shapes.SHAPES) | {"llama-3-70b-tp8"})
    assert ours == {"llama-3-8b", "llama-3-70b", "llama-3-70b-tp8", "opt-13b"}
    assert find_shape("llama-3-70b-tp8") == shapes.find("llama-3-70b").shard(8)
    assert "Llama-3.1-8B-Instruct" in set(frame["model_published"])
    with pytest.raises(ValueError, match="unknown model"):
        find_shape("GPT-J 6B (MHA)")


@pytest.mark.parametrize(
    ("hardware", "name"),
    [
        (H100, "H100-SXM"),
        ("H100-PCIE-80GB", "H100-PCIe"),
        ("A100-SXM4-40GB", "A100-40GB"),
        ("A100-80GB", "A100-80GB"),
        ("4x A100-80GB", None),
        ("A800 nodes", None),
        ("not named (8 GPUs)", None),
    ],
)
def test_data_sheets_of_single_gpus_only(hardware: str, name: str | None) -> None:
    spec = find_spec(hardware)
    assert (spec.name if spec else None) == name


def test_kernel_sums_and_served_times_are_never_one_series(frame: pd.DataFrame) -> None:
    series = prefill_series(frame, H100, "llama-3-8b")
    assert {one.kind for one in series} == {"prefill_total_s", "ttft_s"}
    assert [one.kind for one in prefill_series(frame, H100, "llama-3-8b", "ttft_s")] == ["ttft_s"]
    for one in prefill_series(frame):
        assert (np.diff(one.tokens) > 0).all(), "two values of one length: two things in one series"
        assert "load KV" not in one.method


def test_loading_from_host_memory_is_no_prefill(frame: pd.DataFrame) -> None:
    [loads] = load_series(frame, H100)
    assert loads.kind == "ttft_s"
    [cold] = prefill_series(frame, H100, kind="ttft_s")
    assert loads.seconds[-1] < cold.seconds[-1] / 20  # 22 times at 100,000 tokens, says the source


def test_copy_rates_by_fragment(frame: pd.DataFrame) -> None:
    [into] = copy_series(frame, H100, LOOP, "swap_in")
    assert into.fragment_bytes[0] == 4096
    assert into.bytes_s[0] == pytest.approx(1.11e9)
    assert into.seconds[0] == pytest.approx(1000 * 4096 / 1.11e9)
    assert into.reading_error[0] == pytest.approx(0.1 / 1.11)
    assert [one.direction for one in copy_series(frame, H100, LOOP)] == ["swap_in", "swap_out"]


def test_links_are_pinned_and_contiguous(frame: pd.DataFrame) -> None:
    a100 = link_rates(frame, "A100-SXM4-40GB")
    assert sorted(a100["value"]) == pytest.approx([12.3e9, 13.2e9])
    everywhere = link_rates(frame)
    assert set(everywhere["direction"]) == {"swap_in", "swap_out"}
    assert not everywhere["method"].str.contains("kernel|small pages|not registered|loaded").any()


def test_cost_of_a_copy(frame: pd.DataFrame) -> None:
    assert per_copy_costs(frame, "H20")["value"].tolist() == pytest.approx([2.3e-6])
    assert per_copy_costs(frame, H100)["value"].between(3.5e-6, 4.5e-6).all()


def test_an_unknown_name_is_answered_with_the_known_ones(frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"no published hardware 'H1000'; there are: .*H100-SXM5-80GB"):
        prefill_series(frame, "H1000")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"source": None}, "no source"),
        ({"value": -1.0}, "not a positive number"),
        ({"unit": "GiB/s"}, "unknown unit; known: s, us"),
        ({"direction": "out"}, "unknown direction"),
        ({"id": "vidur-a100-l3-8b-tp1-att-64"}, "id used twice"),
    ],
)
def test_bad_rows_are_refused(raw: pd.DataFrame, tmp_path: Path, change: dict[str, object], problem: str) -> None:
    rows = raw.head(3).astype(dict.fromkeys(change, object))
    for column, value in change.items():
        rows.loc[0, column] = value
    path = tmp_path / "p.csv"
    rows.to_csv(path, index=False)
    with pytest.raises(BadFile, match=problem):
        load_published(path)


def test_a_missing_column_is_named(raw: pd.DataFrame, tmp_path: Path) -> None:
    assert list(AS_GATHERED) != list(raw.columns)  # order is free
    path = tmp_path / "p.csv"
    raw.drop(columns="how_read").to_csv(path, index=False)
    with pytest.raises(BadFile, match="no column how_read"):
        load_published(path)
