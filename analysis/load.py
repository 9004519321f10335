"""Result files to one tidy frame: a row for each case and session. Imports no torch.

Beside the columns named in `load`, every axis of the case is a column of its own name; an axis whose name is taken
(a copy sweep's `fragment_bytes`, say) becomes `case_<axis>`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.contract import CLOCKS, BadFile, ResultFile, read
from analysis.machine import machine_label

__all__ = [
    "CASE_FIELDS",
    "BadFile",
    "case_id",
    "load",
    "load_unmeasured",
    "plain_recompute",
    "read",
    "rows",
    "unmeasured",
]

CASE_FIELDS = (
    "recovery",
    "direction",
    "method",
    "layout",
    "placement",
    "model",
    "dtype",
    "layers_timed",
    "layers_model",
    "block_size",
    "seq_len",
    "batch",
)
QUESTION_FIELDS = (  # axes of one bench file alone; null in rows, and absent in files, that do not ask that question
    "chunk_tokens",
    "cached_tokens",
    "probe",
    "matrix",
    "memory_bytes",
    "policy",
    "company",
    "company_size",
    "company_context",
    "preemptions",
    "growth_tokens",
    "fraction",
    "timed",
)
WORK_FIELDS = ("bytes", "descriptors", "fragment_bytes", "descriptors_merged", "flops")
FACTS = (  # of a row's detail: numbers
    "ceiling_gbps",
    "outside_layers_s",
    "mfu",
    "mfu_gemm",
    "peak_gemm_flops",
    "compile_s",
    "flop_per_byte",
    "least_memory_bytes",
    "memory_gbps",
    "front_tokens",
    "front_alone_s",
    "rest_alone_s",
    "beside_alone_s",
    "beside_runs",
    "step_alone_s",
)
DETAIL_FIELDS = (*FACTS, "attention_backend", "cuda_graph", "lengths", "bytes_out", "bytes_in")
DETAIL_NAMES = {"least_memory_bytes": "memory_bytes"}  # the axis of that name is another thing
BASELINE = ("baseline_wall_s", "baseline_median_s")
FILE_FIELDS = ("file", "label", "session", "backend", "hardware", "machine", "origin")
ROW_FIELDS = ("case_id", "order", "name", "prepare_s", "verified", "suspect", "rounds")
MEDIANS = tuple(clock.replace("_s", "_median_s") for clock in CLOCKS)
COLUMNS = (*CASE_FIELDS, *WORK_FIELDS, *CLOCKS, *MEDIANS, *BASELINE, *DETAIL_FIELDS, *ROW_FIELDS, *FILE_FIELDS)
SIZES = ("layers_timed", "layers_model", "block_size", "seq_len", "batch")
ASKED_SIZES = (  # question fields that count something
    *("chunk_tokens", "cached_tokens", "matrix", "memory_bytes", "company_size", "company_context", "preemptions"),
    "growth_tokens",
)
INTEGERS = (*SIZES, *ASKED_SIZES, *WORK_FIELDS)  # null in some rows: nullable integers, so that 16 stays 16
NUMBERS = (*FACTS, *MEDIANS, "baseline_median_s", "fraction", "prepare_s")


def load(specs: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Read result files into a frame, one row a case and session.

    Parameters
    ----------
    specs : str, path, or an iterable of them
        Paths, globs, or `label=path`: the label then stands for the machine.

    Returns
    -------
    pandas.DataFrame
        The case's axes; the work fields; `wall_s`, `issue_s`, `device_s` (an array of seconds, one a round) and their
        medians `wall_median_s` ...; `baseline_wall_s` (None where there is none) and `baseline_median_s`; `rounds`,
        `prepare_s`, `verified`, `suspect` (list of reasons), `case_id`, `session`, `order`, `file`, `backend`,
        `hardware` (GPU, link and driver), `machine` (the label, else the hardware), `origin` ("measured"); and
        `DETAIL_FIELDS` from the row's detail, whose `memory_bytes` becomes `least_memory_bytes`.

    Raises
    ------
    BadFile
        One line that names the file and what is wrong with it. No row is taken from a file with a bad row.
    """
    return rows(read(specs))


def load_unmeasured(specs: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """The cases that left no number: see `unmeasured`. Raises BadFile as `load` does."""
    return unmeasured(read(specs))


def rows(files: Iterable[ResultFile]) -> pd.DataFrame:
    """The frame of `load`, from files already read.

    Raises
    ------
    BadFile
        If a case occurs twice in a session, or one label stands for two machines.
    """
    files = list(files)
    _check_labels(files)
    records = [_record(file, row) for file in files for row in file.document["benchmarks"]]
    _check_unique(records)
    frame = pd.DataFrame.from_records(records)
    known = (*COLUMNS, *QUESTION_FIELDS)
    frame = frame.reindex(columns=[*known, *(name for name in frame.columns if name not in known)])
    return frame.astype(dict.fromkeys(INTEGERS, "Int64") | dict.fromkeys(NUMBERS, "float64"))


def plain_recompute(frame: pd.DataFrame) -> pd.Series[bool]:
    """Which rows are a recompute in one piece with nothing cached; in chunks or behind a prefix is another question."""
    whole = frame[["chunk_tokens", "cached_tokens"]].isna().all(axis=1)
    return (frame["recovery"] == "recompute") & whole


def unmeasured(files: Iterable[ResultFile]) -> pd.DataFrame:
    """Cases that were skipped or failed: `kind` ("skipped" or "failed"), `reason`, the case, the file."""
    records = [
        {"kind": kind, "reason": entry["reason"], **_file_facts(file), **entry["case"]}
        for file in files
        for kind in ("skipped", "failed")
        for entry in file.document[kind]
    ]
    frame = pd.DataFrame.from_records(records)
    leading = ("kind", "reason", *CASE_FIELDS, *FILE_FIELDS)
    return frame.reindex(columns=[*leading, *(name for name in frame.columns if name not in leading)])


def case_id(case: dict[str, Any]) -> str:
    """The case as one string, by which files are joined: axes in order of name, null axes left out, 16.0 as 16."""
    plain = {axis: int(v) if isinstance(v, float) and v.is_integer() else v for axis, v in case.items()}
    return json.dumps({axis: v for axis, v in plain.items() if v is not None}, sort_keys=True, separators=(",", ":"))


def _record(file: ResultFile, row: dict[str, Any]) -> dict[str, Any]:
    info = row["extra_info"]
    clocks = {clock: np.asarray(info["clocks"][clock], dtype=float) for clock in CLOCKS}
    return {
        **{_column(axis): value for axis, value in info["case"].items()},
        **{field: info["work"][field] for field in WORK_FIELDS},
        **clocks,
        **{median: float(np.median(clocks[clock])) for median, clock in zip(MEDIANS, CLOCKS, strict=True)},
        **_baseline(info.get("baseline")),
        **{field: info["detail"].get(DETAIL_NAMES.get(field, field)) for field in DETAIL_FIELDS},
        **{field: info[field] for field in ("order", "prepare_s", "verified")},
        "name": row["name"],
        "case_id": case_id(info["case"]),
        "suspect": list(info["suspect"]),
        "rounds": len(clocks["wall_s"]),
        **_file_facts(file),
    }


def _baseline(clocks: dict[str, Any] | None) -> dict[str, Any]:
    if clocks is None:
        return dict.fromkeys(BASELINE)
    wall_s = np.asarray(clocks["wall_s"], dtype=float)
    return {"baseline_wall_s": wall_s, "baseline_median_s": float(np.median(wall_s))}


def _column(axis: str) -> str:
    return axis if axis in CASE_FIELDS or axis not in COLUMNS else f"case_{axis}"


def _file_facts(file: ResultFile) -> dict[str, Any]:
    machine = file.document["machine_info"]
    hardware = machine_label(machine)
    return {
        "file": str(file.path),
        "label": file.label,
        "session": file.document["session"]["id"],
        "backend": machine["backend"],
        "hardware": hardware,
        "machine": file.label or hardware,
        "origin": "measured",
    }


def _check_labels(files: list[ResultFile]) -> None:
    seen: dict[str, tuple[str, str]] = {}
    for file in files:
        machine = file.document["machine_info"]
        here = (machine["backend"], machine_label(machine))
        first = seen.setdefault(file.label or here[1], here)
        if first != here:
            raise BadFile(file.path, f"label {file.label!r} stands for {here[1]} here and for {first[1]} elsewhere")


def _check_unique(records: list[dict[str, Any]]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for record in records:
        key = record["session"], record["case_id"]
        if key in seen:
            place = "the same file" if seen[key] == record["file"] else seen[key]
            raise BadFile(record["file"], f"duplicate of a row in {place}: session {key[0]}, case {key[1]}")
        seen[key] = record["file"]
