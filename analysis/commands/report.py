"""`report`: everything that result files say, as one HTML page."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.commands.common import CPU_WARNING, Files, Json, WithCpu, one_line, print_json, show
from analysis.contract import NothingToDraw, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from analysis.report import Evidence

MOST_COLUMNS = 2  # of panels side by side: more are too small to read on a page


def report(
    files: Files,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page, e.g. report.html.")],
    with_cpu: WithCpu = False,
    as_json: Json = False,
) -> None:
    """One HTML page with the answer, pictures and tables: what was measured, what ties where, which claims hold."""
    from analysis.commands.pictures import svg
    from analysis.page import page
    from analysis.report import markdown, values

    with one_line():
        if out.is_dir():
            raise NothingToDraw(f"{out}: a folder; --out names the page, e.g. {out / 'report.html'}")
        evidence, figures = _gather(files, out, with_cpu)
        _name_pictures(evidence, figures)
        pictures = {f"{name}.svg": svg(figure, name) for name, figure in figures.items()}
        _write(out, page(markdown(evidence), pictures))
    if as_json:
        print_json(values(evidence, out))
        return
    told = [line for answer in evidence.answers for line in answer.lines]
    cpu = [f"*** {CPU_WARNING} ***"] if (evidence.frame["backend"] == "cpu").any() else []
    show([], [*told, *cpu, *filter(None, [evidence.missing]), *evidence.notes, f"written: {out}"])


def _name_pictures(evidence: Evidence, figures: dict[str, Figure]) -> None:
    evidence.pictures = {name: [f"{name}.svg"] for name in figures}
    for name in [name for name in figures if name.startswith("crossover-")]:
        evidence.pictures.setdefault("crossover", []).append(f"{name}.svg")


def _write(out: Path, text: str) -> None:
    """Whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".report-") as folder:
        draft = Path(folder) / out.name
        draft.write_text(text, encoding="utf-8")
        draft.replace(out)


def _gather(files: Sequence[str], out: Path, with_cpu: bool) -> tuple[Evidence, dict[str, Figure]]:
    """All that the report shows. What the rows do not suffice for is a note, not an error."""
    from analysis.answers import answers
    from analysis.basis import bases_of
    from analysis.claims import judge
    from analysis.commands.pictures import cost_figures, crossover_figures
    from analysis.figure19 import Selection, panels
    from analysis.figures import draw_figure19
    from analysis.load import rows, unmeasured
    from analysis.published import load_published
    from analysis.questions import answered, draw_all
    from analysis.report import Evidence

    results = read(files)
    arguments = " ".join([*map(shlex.quote, files), "--out", shlex.quote(str(out)), *(["--with-cpu"] * with_cpu)])
    evidence = Evidence(results, rows(results), unmeasured(results), arguments)
    if evidence.frame.empty:
        raise NothingToDraw(f"no rows in {', '.join(file.path.name for file in results)}: nothing was measured")
    figures: dict[str, Figure] = {}
    selection = Selection(methods=(), layouts=(), placements=(), with_cpu=with_cpu)
    try:
        evidence.panels, notes = panels(evidence.frame, selection)
        evidence.bases = bases_of(evidence.panels, evidence.frame)
        evidence.notes += notes
        figures["figure19"] = draw_figure19(evidence.panels, columns=min(MOST_COLUMNS, len(evidence.panels)))
        maps, without = crossover_figures(evidence.bases)
        figures |= maps
        evidence.notes += without
    except NothingToDraw as error:
        evidence.missing = f"No comparison of swap and recompute: {error}."
    costs, without = cost_figures(evidence.frame, ("rates", "recompute", "generations"), with_cpu)
    evidence.notes += without
    evidence.answers = answers(evidence.frame, evidence.left, evidence.panels, evidence.bases)
    evidence.found = answered(evidence.frame, with_cpu)
    figures |= draw_all(evidence.found)
    evidence.verdicts = judge(evidence.frame, load_published())
    return evidence, figures | costs
