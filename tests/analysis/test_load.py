"""Every refusal of the loader has its sentence, and what it accepts comes out as it was written."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.load import BadFile, case_id, load, load_unmeasured
from analysis.scaling import to_full_model
from tests.analysis.synthetic import A100, CPU, case, document, figure19_document, row, write

SWAP: dict[str, Any] = {"recovery": "swap", "direction": "swap_in", "method": "memcpy_loop", "layout": "layer_split"}
BLOCKS: dict[str, Any] = {"placement": "scattered", "block_size": 16}


def small() -> dict[str, Any]:
    """One swap and one recompute of three rounds each."""
    return document([row(case(**SWAP, **BLOCKS), [0.01, 0.02, 0.03]), row(case(), [0.2, 0.1, 0.3], 1)])


def edited(edit: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """`small` after `edit`."""
    content = small()
    edit(content)
    return content


def info(content: dict[str, Any], index: int = 0) -> dict[str, Any]:
    """The suite's part of a row."""
    found: dict[str, Any] = content["benchmarks"][index]["extra_info"]
    return found


def refusal(folder: Path, content: Any) -> str:
    """The sentence with which `content` is refused: one line that starts with the file."""
    path = write(folder, content)
    with pytest.raises(BadFile) as caught:
        load(path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}: ")
    assert "\n" not in sentence
    return sentence


def test_a_row_comes_out_as_it_was_written(tmp_path: Path) -> None:
    frame = load(write(tmp_path, small()))
    swap, recompute = frame.to_dict("records")
    assert (swap["direction"], swap["block_size"], swap["bytes"], swap["suspect"]) == ("swap_in", 16, 80 * 4096, [])
    assert (swap["verified"], swap["ceiling_gbps"], swap["rounds"], swap["session"]) == (True, 13.0, 3, "s1")
    np.testing.assert_array_equal(recompute["wall_s"], [0.2, 0.1, 0.3])
    assert recompute["wall_median_s"] == 0.2
    assert recompute["issue_median_s"] == pytest.approx(0.1)
    assert (recompute["attention_backend"], recompute["mfu"], recompute["outside_layers_s"]) == ("flash", 0.6, 0.001)
    assert set(frame["origin"]) == {"measured"}
    assert str(frame["block_size"].dtype) == "Int64"


@pytest.mark.parametrize(
    ("machine", "label"),
    [(A100, "NVIDIA A100-SXM4-40GB, PCIe 4 x16, driver 580.65"), (CPU, "CPU: Xeon 2.2 GHz")],
)
def test_a_machine_is_its_gpu_link_and_driver_and_no_host_name(
    tmp_path: Path, machine: dict[str, Any], label: str
) -> None:
    assert set(load(write(tmp_path, figure19_document(machine=machine)))["machine"]) == {label}


def test_labels_and_globs(tmp_path: Path) -> None:
    write(tmp_path, small(), "one.json")
    write(tmp_path, document([row(case(), [1.0], session="s2")], session="s2"), "two.json")
    frame = load([f"mine={tmp_path}/*.json", f"mine={tmp_path}/one.json"])
    assert len(frame) == 3
    assert set(frame["machine"]) == {"mine"}
    assert set(frame["hardware"]) == {"NVIDIA A100-SXM4-40GB, PCIe 4 x16, driver 580.65"}


def test_a_label_stands_for_one_machine(tmp_path: Path) -> None:
    write(tmp_path, small(), "a.json")
    write(tmp_path, document([row(case(), [1.0], session="s2")], CPU, "s2"), "b.json")
    with pytest.raises(BadFile, match=r"b.json: label 'x' stands for CPU: Xeon 2.2 GHz here and for NVIDIA"):
        load(f"x={tmp_path}/*.json")


def test_an_axis_whose_name_is_taken_gets_a_prefix(tmp_path: Path) -> None:
    frame = load(write(tmp_path, document([row(case(fragment_bytes=7, streams=2), [1.0])])))
    assert (frame["case_fragment_bytes"].item(), frame["streams"].item()) == (7, 2)
    assert frame["fragment_bytes"].isna().all()


def test_skipped_and_failed_are_kept_with_their_reasons(tmp_path: Path) -> None:
    content = document([])
    content["skipped"] = [{"case": case(), "reason": "out of memory"}]
    content["failed"] = [{"case": case(**SWAP, **BLOCKS), "reason": "3 bytes differ"}]
    path = write(tmp_path, content)
    assert load(path).empty
    left = load_unmeasured(path)
    assert left[["kind", "reason"]].to_numpy().tolist() == [["skipped", "out of memory"], ["failed", "3 bytes differ"]]
    assert left["block_size"].tolist()[1] == 16


def test_case_id_ignores_order_nulls_and_the_kind_of_number() -> None:
    assert case_id({"a": 16, "b": None, "c": "x"}) == case_id({"c": "x", "a": 16.0})
    assert case_id({"a": 16}) != case_id({"a": 32})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "empty file: benchmarks were disabled or none ran"),
        ("  \n", "empty file: benchmarks were disabled or none ran"),
        ('{"benchmarks": [', "cut short: Expecting value at line 1 column 17"),
        ('{"benchmarks": oops}', "not JSON: Expecting value at line 1 column 16"),
        ('{"benchmarks": [NaN]}', "holds NaN, which is not a JSON number"),
        ('{"benchmarks": [-Infinity]}', "holds -Infinity"),
        ('{"benchmarks": [1e999]}', "holds 1e999"),
        (f'{{"benchmarks": [{"9" * 5000}]}}', "holds the 5000-digit number"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "not a pytest-benchmark file: no list 'benchmarks'"),
        ('{"results": []}', "not a pytest-benchmark file: no list 'benchmarks'"),
    ],
)
def test_text_that_is_no_result_file(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in refusal(tmp_path, text)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\x80\x81")
    with pytest.raises(BadFile, match="not UTF-8 text at byte 0"):
        load(path)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"none\.json: no such file"):
        load(tmp_path / "none.json")
    with pytest.raises(BadFile, match=r"\*\.json: no file matches"):
        load(f"{tmp_path}/*.json")
    with pytest.raises(BadFile, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_an_ordinary_pytest_benchmark_file(tmp_path: Path) -> None:
    ordinary = {"machine_info": {}, "benchmarks": [{"name": "test_sort", "extra_info": {}, "stats": {"data": [1.0]}}]}
    assert "not from this suite: no extra_info.case in benchmarks[0] (test_sort)" in refusal(tmp_path, ordinary)
    del ordinary["benchmarks"][0]["extra_info"]  # type: ignore[index]
    assert "not from this suite" in refusal(tmp_path, ordinary)  # as pytest-benchmark 2.5.0 wrote them


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda d: d.update(schema=2), "schema 2 is newer than the 1 known here"),
        (lambda d: d.pop("schema"), "at $: 'schema' is a required property"),
        (lambda d: d["benchmarks"][0]["stats"].pop("data"), "stats.data is missing in benchmarks[0] (bench[0])"),
        (lambda d: d["benchmarks"][0]["stats"].update(data=["omitted"]), "something other than numbers of seconds"),
        (lambda d: d["benchmarks"][0]["stats"].update(data=[True] * 3), "something other than numbers of seconds"),
        (lambda d: d["benchmarks"][0]["stats"].update(data="omitted"), "stats.data is missing"),
        (lambda d: info(d).pop("clocks"), "at $.benchmarks[0].extra_info: 'clocks' is a required property"),
        (lambda d: info(d).update(extra=1), "Additional properties are not allowed ('extra' was unexpected)"),
        (
            lambda d: info(d)["clocks"].update(wall_s=[1, "2", 3]),
            "at $.benchmarks[0].extra_info.clocks.wall_s[1]: expected type 'number', found '2'",
        ),
        (lambda d: info(d)["clocks"].update(wall_s=[1, -1, 3]), "wall_s[1]: expected minimum 0, found -1"),
        (lambda d: info(d)["clocks"].update(wall_s=[1, True, 3]), "wall_s[1]: expected type 'number', found True"),
        (lambda d: info(d)["clocks"].update(wall_s=[1, None, 3]), "wall_s[1]: expected type 'number', found None"),
        (lambda d: info(d)["clocks"].update(wall_s=[1, 2]), "one value a round expected, found {'wall_s': 2"),
        (lambda d: info(d)["clocks"].update(wall_s=[1, 0, 3]), "a wall clock of 0 s"),
        (lambda d: info(d)["clocks"].update(wall_s=[0.01, 0.2, 0.03]), "stats.data and clocks.wall_s tell different"),
        (lambda d: info(d)["case"].update(layout="diagonal"), "extra_info.case.layout: expected enum ['layer_split'"),
        (lambda d: info(d)["case"].update(direction=None, method=None), "recovery 'swap' without direction, method"),
        (lambda d: info(d)["case"].update(block_size=None), "recovery 'swap' without block_size"),
        (lambda d: info(d)["case"].update(layers_timed=41), "41 layers timed of a model of 40"),
        (lambda d: info(d).update(session="other"), "session 'other' in a file of session 's1'"),
        (
            lambda d: info(d, 1)["detail"].update(outside_layers_s="1"),
            "outside_layers_s: expected type ['number', 'null'], found",
        ),
        (lambda d: info(d)["detail"].update(ceiling_gbps=-1), "ceiling_gbps: expected minimum 0, found -1"),
        (lambda d: d.update(machine_info=A100 | {"gpu": None}), "machine_info: backend 'cuda' with gpu None"),
        (lambda d: d["benchmarks"].append(d["benchmarks"][0]), "duplicate of a row in the same file: session s1"),
    ],
)
def test_a_broken_contract(tmp_path: Path, edit: Callable[[dict[str, Any]], Any], sentence: str) -> None:
    assert sentence in refusal(tmp_path, edited(edit))


def test_the_ceiling_is_a_swap_without_blocks(tmp_path: Path) -> None:
    ceiling = case(recovery="swap", direction="swap_in", method="contiguous")
    assert len(load(write(tmp_path, document([row(ceiling, [1.0])])))) == 1


def test_one_session_twice_under_two_names(tmp_path: Path) -> None:
    paths = [write(tmp_path, small(), name) for name in ("a.json", "b.json")]
    with pytest.raises(BadFile, match=r"b\.json: duplicate of a row in .*a\.json"):
        load(paths)
    assert len(load([paths[0], paths[0]])) == 2


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inside for place in places(item, (*path, key)))]


DAMAGE: st.SearchStrategy[Any] = st.sampled_from(
    ["delete", None, True, -1, -0.5, "", "x", [], {}, [None], float("nan"), 10**30, "1e999"]
)
TRUTH = {"swap": 0.02, "recompute": 0.2}


@settings(max_examples=300, deadline=None)
@given(place=st.sampled_from([place for place in places(small()) if place]), damage=DAMAGE)
def test_one_damaged_field_is_refused_or_changes_no_number(place: tuple[Any, ...], damage: Any) -> None:
    content: Any = copy.deepcopy(small())
    holder = content
    for key in place[:-1]:
        holder = holder[key]
    if damage == "delete":
        del holder[place[-1]]
    else:
        holder[place[-1]] = damage
    with tempfile.TemporaryDirectory() as folder:
        try:
            whole, _ = to_full_model(load(write(Path(folder), json.dumps(content))))
        except BadFile:
            return
    for recovery, seconds in zip(whole["recovery"], whole["wall_median_s"], strict=True):
        assert seconds == TRUTH[recovery]


def test_one_layer_of_forty_scaled(tmp_path: Path) -> None:
    rows = [
        row(case(layers=1), [0.003]),
        row(case(layers=1, **SWAP, **BLOCKS), [0.002], 1),
        row(case(layers=1, **(SWAP | {"layout": "cross_layer"}), **BLOCKS), [0.002], 2),
        row(case(**(SWAP | {"layout": "cross_layer"}), **BLOCKS), [0.004], 3),
        row(case(layers=2), [0.003], 4, detail={}),
        row(case(layers=3), [0.003], 5, detail={"outside_layers_s": 0.004}),
    ]
    frame = load(write(tmp_path, document(rows)))
    whole, dropped = to_full_model(frame)
    assert whole["scaled"].tolist() == [True, True, False]
    # (3 ms - 1 ms) * 40 + 1 ms; 2 ms * 40; as measured
    assert whole["wall_median_s"].tolist() == pytest.approx([0.081, 0.08, 0.004])
    np.testing.assert_allclose(whole["wall_s"].iloc[0], [0.081])
    assert np.isnan(whole["issue_s"].iloc[0]).all()
    assert whole["descriptors"].tolist()[1:] == [80, 80]
    assert "layout cross_layer would have larger fragments" in dropped["reason"].iloc[0]
    assert "outside_layers_s was not recorded" in dropped["reason"].iloc[1]
    assert "is no part of the rounds" in dropped["reason"].iloc[2]
    assert frame["wall_median_s"].iloc[0] == 0.003


def test_analysis_imports_no_torch_and_its_command_line_no_pandas() -> None:
    code = "import sys, analysis.__main__; print('pandas' in sys.modules);"
    code += "import analysis.load, analysis.figures, analysis.tables; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
