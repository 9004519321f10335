"""`schema`: are these result files good?"""

from __future__ import annotations

import sys
from typing import Any

import typer

from analysis.commands.common import Files, Json, one_line, print_json
from analysis.contract import BadFile, ResultFile, expand, read_document
from analysis.machine import machine_label


def schema(files: Files, as_json: Json = False) -> None:
    """Check result files against the contract: a line each, exit code 2 if one is bad."""
    with one_line():
        found = expand(files)
    good, bad = [], False
    for label, path in found:
        try:
            good.append(_summary(ResultFile(path, label, read_document(path))))
        except BadFile as error:
            print(error, file=sys.stderr)
            bad = True
            continue
        if not as_json:
            print(_line(good[-1]))
    if as_json:
        print_json({"files": good})
    raise typer.Exit(2 if bad else 0)


def _summary(file: ResultFile) -> dict[str, Any]:
    from analysis.load import rows

    document = file.document
    rows([file])  # duplicates
    counts = {"rows": len(document["benchmarks"])}
    counts["suspect"] = sum(bool(row["extra_info"]["suspect"]) for row in document["benchmarks"])
    counts |= {kind: len(document[kind]) for kind in ("skipped", "failed")}
    machine = machine_label(document["machine_info"])
    return {"file": str(file.path), "label": file.label, "machine": machine, **counts}


def _line(summary: dict[str, Any]) -> str:
    counts = ", ".join(f"{summary[kind]} {kind}" for kind in ("rows", "suspect", "skipped", "failed"))
    label = f" ({summary['label']})" if summary["label"] else ""
    return f"{summary['file']}: {counts}; {summary['machine']}{label}"
