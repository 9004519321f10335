"""`compare`: the same cases on several machines, or before and after a change."""

from __future__ import annotations

from typing import Annotated

import typer

from analysis.commands.common import CPU_WARNING, Files, Json, WithCpu, one_line, print_json, save_all, show
from analysis.contract import read


def compare(
    files: Files,
    base: Annotated[str | None, typer.Option(help="Group to compare against; the first by default.")] = None,
    fail_over: Annotated[float, typer.Option(min=1.0, help="Exit 1 if a case is slower by more than this.")] = 1.10,
    out: Annotated[str | None, typer.Option(help="Folder for pictures; none are drawn without it.")] = None,
    with_cpu: WithCpu = False,
    as_json: Json = False,
) -> None:
    """Ratio of medians, case by case, between labelled groups: before=a.json after=b.json."""
    from analysis.commands.pictures import cost_figures
    from analysis.comparison import compare_groups, comparison_values, grid
    from analysis.load import rows

    with one_line():
        frame = rows(read(files))
        found = compare_groups(frame, base, with_cpu)
        figures, without = cost_figures(frame, ("generations", "rates"), with_cpu) if out else ({}, [])
        paths = save_all(figures, out) if out else []
    notes = [*found.notes, *without]
    failed = [pair for pair in found.pairs if pair.fails(fail_over)]
    on_cpu = (frame["backend"] == "cpu").any()
    if as_json:
        cases = comparison_values(found, fail_over)
        values = {"base": found.base, "fail_over": fail_over, "failed": len(failed), "cases": cases}
        print_json(values | {"notes": notes, "files": [str(path) for path in paths]})
    else:
        warning = [f"*** {CPU_WARNING} ***"] if on_cpu else []
        end = f"{len(failed)} of {len(found.pairs)} cases are slower by more than {fail_over:g}"
        written = [f"written: {path}" for path in paths]
        show([table.terminal() for table in grid(found, fail_over)], [*notes, end, *warning, *written])
    raise typer.Exit(1 if failed else 0)
