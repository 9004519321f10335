"""`recoveries`: what lies between swap and recompute, and what both cost in company."""

from __future__ import annotations

from analysis.commands.common import CPU_WARNING, Files, Json, Out, WithCpu, hint, one_line, print_json, save_all, show
from analysis.contract import read


def recoveries(
    files: Files,
    out: Out = "figures/",
    with_cpu: WithCpu = False,
    as_json: Json = False,
) -> None:
    """Ridge, company, repeated preemptions, hybrid splits, interference, and the time until the next token."""
    from rich.text import Text

    from analysis.load import rows
    from analysis.questions import QUESTIONS, answered, at_least_one, draw_all, missing, sheets

    with one_line():
        results = read(files)
        found = answered(rows(results), with_cpu)
        with hint(results):
            at_least_one(found)
        paths = save_all(draw_all(found), out)
    tables = sheets(found)
    notes = [note for note in [missing(found)] if note]
    if as_json:
        known = {name: [sheet.values() for sheet in mine] for name, mine in tables.items()}
        print_json(known | {"notes": notes, "files": [str(path) for path in paths]})
        return
    parts = []
    for name, mine in tables.items():
        parts += [Text(QUESTIONS[name].words, style="bold"), *(sheet.grid().terminal() for sheet in mine)]
    cpu = any(one.subject.backend == "cpu" for mine in found.values() for one in mine)
    warning = [f"*** {CPU_WARNING} ***"] if cpu else []
    show(parts, [*warning, *notes, *(f"written: {path}" for path in paths)])
