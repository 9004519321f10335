"""Predictions against arithmetic by hand, their constants, and how far off they are on published rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis.__main__ import app
from analysis.accuracy import COLUMNS, compare, summary
from analysis.cost_model import CopyFit, PrefillFit
from analysis.efficiencies import Efficiencies, derive, idle_link_rates
from analysis.load import load
from analysis.predict import predict_recompute, predict_swap, with_link
from analysis.published import load_published
from kernels import shapes
from kernels.specs import all_specs
from tests.analysis.synthetic import CPU, figure19_document, write

LLAMA, OPT = shapes.find("llama-3-8b"), shapes.find("opt-13b")
A100 = next(spec for spec in all_specs() if spec.name == "A100-80GB")


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return load_published()


@pytest.fixture(scope="module")
def derived(published: pd.DataFrame) -> Efficiencies:
    return derive(published)


@pytest.fixture(scope="module")
def perfect(derived: Efficiencies) -> Efficiencies:
    """The data sheet itself, and 3 us a copy."""
    return derived.stated(link_share=1.0, per_copy_s=3e-6, flops_share=1.0, hbm_share=1.0)


def test_constants_are_medians_of_published_rows(published: pd.DataFrame, derived: Efficiencies) -> None:
    """By hand: 9 published costs of a copy, 2.3 to 4.45 us; A100 at 25.8 of 31.5 GB/s is 0.82."""
    assert derived.per_copy_s.rows == 9
    assert (derived.per_copy_s.low, derived.per_copy_s.high) == pytest.approx((2.3e-6, 4.45217e-6))
    assert derived.per_copy_s.value == pytest.approx(3.69009e-6)
    rates = idle_link_rates(published)
    della = rates[rates["id"] == "della-a100-h2d"].iloc[0]
    assert della["value"] / della["spec"].link_bytes_s == pytest.approx(25.8 / 31.5)
    assert not rates["id"].str.contains("remote|mlock|bidir|-all").any()
    for figure in (derived.link_share, derived.flops_share, derived.hbm_share):
        assert 0 < figure.low <= figure.value <= figure.high < 1
        assert figure.rows > 10


def test_an_assumption_says_where_it_comes_from(derived: Efficiencies) -> None:
    swap = predict_swap(LLAMA, 4096, A100, derived, block_size=16)
    assert "16,384 copies of 32,768 bytes" in swap.assumption
    assert f"median of {derived.link_share.rows} published rows" in swap.assumption
    assert "3.69 us (median of 9 published rows, 2.3 to 4.45 us" in swap.assumption
    recompute = predict_recompute(LLAMA, 4096, A100, derived.stated(flops_share=0.5))
    assert "312 TFLOP/s x 0.5 (stated)" in recompute.assumption
    assert swap.origin == recompute.origin == "modelled"


def test_swap_by_hand(perfect: Efficiencies) -> None:
    """4,096 tokens are 536,870,912 bytes: 17.04 ms at 31.5 GB/s; 16,384 copies of block 16 add 49.2 ms."""
    assert predict_swap(LLAMA, 4096, A100, perfect).seconds == pytest.approx(3e-6 + 0.0170435, rel=1e-4)
    blocks = predict_swap(LLAMA, 4096, A100, perfect, block_size=16)
    assert (blocks.descriptors, blocks.nbytes) == (16384, 536870912)
    assert blocks.seconds == pytest.approx(0.049152 + 0.0170435, rel=1e-4)
    assert blocks.round_trip_s == 2 * blocks.seconds
    joined = predict_swap(LLAMA, 4096, A100, perfect, block_size=16, layout="cross_layer")
    assert joined.descriptors == 256
    gen3 = with_link(A100, "PCIe 3.0 x16", 15.75e9)
    assert predict_swap(LLAMA, 4096, gen3, perfect).seconds == pytest.approx(0.034087, rel=1e-3)


@pytest.mark.parametrize(("tokens", "milliseconds"), [(4096, 197.3), (8192, 423.0)])
def test_recompute_at_peak_is_the_notes_figure(perfect: Efficiencies, tokens: int, milliseconds: float) -> None:
    """papers-and-numbers: 197 ms at 4K and 423 ms at 8K on an A100 at 100 % of its peak."""
    found = predict_recompute(LLAMA, tokens, A100, perfect)
    assert found.seconds * 1e3 == pytest.approx(milliseconds, rel=2e-3)
    assert found.bound == "compute"


def test_a_short_prefill_is_one_read_of_the_weights(perfect: Efficiencies) -> None:
    """15.0 GB at 2,039 GB/s: 7.36 ms (the notes' 6.8 ms leave the LM head out)."""
    found = predict_recompute(LLAMA, 16, A100, perfect)
    assert found.bound == "memory"
    assert found.seconds == pytest.approx((2 * 6_979_321_856 + 2 * 128256 * 4096) / 2.039e12)
    assert predict_recompute(LLAMA, 16, A100, perfect, batch=64).bound == "compute"


def test_fitted_constants_replace_the_data_sheet() -> None:
    copies = CopyFit(fixed_s=1e-5, per_copy_s=2e-6, bytes_s=25e9)
    swap = predict_swap(OPT, 256, copies, block_size=256, dtype="float16")
    assert swap.seconds == pytest.approx(1e-5 + 80 * 2e-6 + 209_715_200 / 25e9)
    assert "fitted to measured rows: 10 us + 2 us a copy" in swap.assumption
    prefill = PrefillFit(floor_s=0.01, fixed_s=0.001, linear_s=1e-4, quadratic_s=1e-9)
    found = predict_recompute(OPT, 256, prefill)
    assert found.seconds == pytest.approx(0.001 + 256e-4 + 256**2 * 1e-9)
    assert found.bound == "fit"
    with pytest.raises(ValueError, match="says nothing of a batch of 2"):
        predict_recompute(OPT, 256, prefill, batch=2)


def test_what_cannot_be_predicted_is_refused(derived: Efficiencies) -> None:
    with pytest.raises(ValueError, match="a data sheet needs efficiencies"):
        predict_swap(LLAMA, 256, A100)
    with pytest.raises(ValueError, match="0 tokens"):
        predict_swap(LLAMA, 0, A100, derived)
    with pytest.raises(ValueError, match="both must be 1 or more"):
        predict_recompute(LLAMA, 256, A100, derived, batch=0)


def test_every_published_row_is_compared(published: pd.DataFrame) -> None:
    table = compare(None, published)
    for row in table.itertuples():
        print(f"{row.factor:6.2f}  {row.what}: {row.case}")
    assert list(table.columns) == list(COLUMNS)
    assert set(table["origin"]) == {"published"}
    assert len(table) > 180
    assert (table["factor"] >= 1).all()
    assert np.isfinite(table["factor"]).all()
    assert {"recompute", "copy loop", "contiguous copy"} <= set(table["what"])


def test_factors_are_ratios_either_way_and_summed_up(published: pd.DataFrame) -> None:
    table = compare(None, published)
    larger = table[["predicted_s", "actual_s"]].max(axis=1) / table[["predicted_s", "actual_s"]].min(axis=1)
    assert table["factor"].to_numpy() == pytest.approx(larger.to_numpy())
    *groups, everything = summary(table)
    assert everything.cases == len(table) == sum(group.cases for group in groups)
    assert everything.median_factor == pytest.approx(float(table["factor"].median()))
    assert everything.worst_factor == pytest.approx(float(table["factor"].max()))
    assert everything.worst_case in set(table["case"])
    assert everything.median_factor < 1.5  # a table that is off by more is not worth printing


def test_rows_that_helped_to_derive_are_marked(published: pd.DataFrame) -> None:
    table = compare(None, published)
    served = table[table["what"].str.contains("served")]
    assert len(served) > 20
    assert not served["in_sample"].any()
    middle = table[(table["what"] == "recompute") & table["tokens"].between(65, 1023)]
    assert not middle["in_sample"].any()
    assert table[(table["what"] == "recompute") & (table["tokens"] >= 1024)]["in_sample"].all()


def test_measured_rows_are_compared_and_cpu_rows_are_not(tmp_path: Path, published: pd.DataFrame) -> None:
    gpu = load([write(tmp_path, figure19_document(rounds=2))])
    table = compare(gpu, published)
    mine = table[table["origin"] == "measured"]
    assert len(mine) == 19
    assert set(mine["what"]) == {"swap", "recompute"}
    assert set(mine["source"]) == {"NVIDIA A100-SXM4-40GB, PCIe 4 x16, driver 580.65"}
    cpu = load([write(tmp_path, figure19_document(rounds=2, machine=CPU), "cpu.json")])
    assert set(compare(cpu, published)["origin"]) == {"published"}


def test_the_command_prints_a_factor_for_each_published_case() -> None:
    result = CliRunner().invoke(app, ["predict", "llama-3-8b", "--gpu", "H100-SXM", "--json"])
    assert result.exit_code == 0, result.output
    cases = json.loads(result.output)["cases"]
    assert len(cases) == len(compare(None, load_published())) > 100
    assert all(case["factor"] >= 1 and case["source"] for case in cases)
    printed = CliRunner().invoke(app, ["predict", "llama-3-8b", "--gpu", "H100-SXM", "--cases"]).output
    assert "Every case" in printed
