"""Rows as they were measured: rates of copies, recompute with its MFU, and what left no number."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.comparison import case_text, question_text
from analysis.contract import ResultFile
from analysis.grid import Grid, number
from analysis.intervals import Estimate, median
from analysis.machine import machine_label
from analysis.scaling import to_full_model
from analysis.tables import digits

GB, MS, KIB = 1e9, 1e3, 1024
MOST = 40  # lines of a list of cases


def machines_grid(files: Iterable[ResultFile]) -> Grid:
    """What ran where: a line a file."""
    columns = ("machine", "file", "rows", "sweep", "host", "software")
    return Grid("", columns, tuple(_machine(file) for file in files), numbers=("rows",))


def _machine(file: ResultFile) -> tuple[str, ...]:
    document = file.document
    machine, session = document["machine_info"], document["session"]
    host, software = machine["host"], machine["software"]
    label = f"{file.label}: " if file.label else ""
    facts = [f"{name} {software[name]}" for name in ("torch", "triton", "python", "driver") if software.get(name)]
    return (
        label + machine_label(machine),
        file.path.name,
        str(len(document["benchmarks"])),
        str(session["sweep"].get("name", "?")),
        f"{host['cpu']}, {host['cores']} cores, {host['memory_bytes'] / 2**30:.0f} GiB",
        ", ".join(facts),
    )


def rates_grid(frame: pd.DataFrame) -> Grid:
    """GB/s of every verified swap and copy, by the bytes of one copy, beside the ceiling of the same session."""
    copied = frame["recovery"].isin(["swap", "copy"])
    rows = frame[copied & frame["verified"].astype(bool) & frame["bytes"].notna()]
    columns = ("machine", "direction", "method", "layout", "KiB a copy", "copies", "GB/s", "% of ceiling")
    lines = []
    order = ["machine", "direction", "method", "fragment_bytes", "descriptors"]
    for _, case in rows.sort_values(order, kind="stable").groupby(["machine", "case_id"], sort=False):
        first = case.iloc[0]
        once = first["method"] == "contiguous"
        copies = int(first["descriptors_merged" if once else "descriptors"])
        rate = float(first["bytes"]) / float(np.median(np.concatenate(list(case["wall_s"])))) / GB
        ceiling = case["ceiling_gbps"].median()
        lines.append(
            (
                str(first["machine"]),
                str(first["direction"]),
                str(first["method"]),
                "" if pd.isna(first["layout"]) else str(first["layout"]),
                f"{float(first['bytes']) / copies / KIB:,.0f}",
                f"{copies:,}",
                digits(rate) + _mark(case),
                "-" if pd.isna(ceiling) else f"{100 * rate / ceiling:.0f}",
            )
        )
    return Grid("", columns, tuple(lines), _suspect_note(rows), numbers=columns[4:])


def recompute_grid(frame: pd.DataFrame) -> Grid:
    """Every recompute, in chunks and behind a cached prefix too, scaled to the whole model."""
    whole, dropped = to_full_model(frame[frame["recovery"] == "recompute"])
    columns = (
        "machine",
        "model",
        "dtype",
        "tokens",
        "batch",
        "how",
        "layers timed",
        "whole model, ms",
        "MFU",
        "attention",
    )
    lines = []
    for _, case in whole.sort_values(["machine", "model", "seq_len"]).groupby(["machine", "case_id"], sort=False):
        first = case.iloc[0]
        mfu = case["mfu"].median()
        lines.append(
            (
                *(str(first[name]) for name in ("machine", "model", "dtype", "seq_len", "batch")),
                question_text(first.to_dict()) or "in one piece",
                f"{first['layers_timed']} of {first['layers_model']}",
                number(_seconds(case), MS, _mark(case)),
                "-" if pd.isna(mfu) else f"{mfu:.1%}",
                str(first["attention_backend"] or "-"),
            )
        )
    notes = [f"{rows} rows left out: {reason}" for reason, rows in dropped["reason"].value_counts().items()]
    return Grid("", columns, tuple(lines), (*notes, *_suspect_note(whole)), numbers=columns[3:5] + columns[7:9])


def unmeasured_grid(left: pd.DataFrame) -> Grid:
    """Cases that were skipped or failed, with their reasons."""
    chosen = left.head(MOST)
    rows = tuple(
        (str(row["kind"]), case_text(row), str(row["machine"]), str(row["reason"])) for row in chosen.to_dict("records")
    )
    return Grid("", ("what", "case", "machine", "reason"), rows, _more(len(left)))


def suspect_grid(frame: pd.DataFrame) -> Grid:
    """Rows with a reason to distrust them."""
    suspect = frame[frame["suspect"].map(bool)]
    rows = tuple(
        (case_text(row), str(row["machine"]), "; ".join(row["suspect"]))
        for row in suspect.head(MOST).to_dict("records")
    )
    return Grid("", ("case", "machine", "reasons"), rows, _more(len(suspect)))


def _more(count: int) -> tuple[str, ...]:
    return (f"and {count - MOST} more",) if count > MOST else () if count else ("none",)


def _seconds(case: pd.DataFrame) -> Estimate:
    key = zlib.crc32("|".join((str(case["machine"].iloc[0]), str(case["case_id"].iloc[0]))).encode())
    return median(list(case["wall_s"]), key=(key,))


def _mark(case: pd.DataFrame) -> str:
    return "*" if case["suspect"].map(bool).any() else ""


def _suspect_note(rows: pd.DataFrame) -> tuple[str, ...]:
    return ("* suspect",) if rows["suspect"].map(bool).any() else ()
