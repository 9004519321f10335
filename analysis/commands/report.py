"""`report`: everything that result files say, as one Markdown file with its pictures."""

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


def report(
    files: Files,
    out: Annotated[Path, typer.Option(help="Folder, made if need be: report.md and its pictures.")],
    with_cpu: WithCpu = False,
    as_json: Json = False,
) -> None:
    """One Markdown report with tables and pictures: what was measured, what ties where, which claims hold."""
    from analysis.report import markdown, values

    with one_line():
        evidence, figures = _gather(files, out, with_cpu)
        if out.exists() and not out.is_dir():
            raise NothingToDraw(f"{out}: a file; --out names a folder")
        evidence.pictures = {name: [f"{name}.svg"] for name in figures}
        for name in [name for name in figures if name.startswith("crossover-")]:
            evidence.pictures.setdefault("crossover", []).append(f"{name}.svg")
        path, *pictures = _write(out, markdown(evidence), figures)
    if as_json:
        print_json(values(evidence, path, pictures))
        return
    cpu = [f"*** {CPU_WARNING} ***"] if (evidence.frame["backend"] == "cpu").any() else []
    show([], [*cpu, *filter(None, [evidence.missing]), *evidence.notes, *(f"written: {p}" for p in (path, *pictures))])


def _write(out: Path, text: str, figures: dict[str, Figure]) -> list[Path]:
    """Report, then pictures; nothing is moved into the folder before all of it is written."""
    from analysis.figures import save

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".report-") as folder:
        draft = Path(folder)
        (draft / "report.md").write_text(text, encoding="utf-8")
        drafts = [draft / "report.md", *(path for name in figures for path in save(figures[name], draft / name))]
        return [path.replace(out / path.name) for path in drafts]


def _gather(files: Sequence[str], out: Path, with_cpu: bool) -> tuple[Evidence, dict[str, Figure]]:
    """All that the report shows. What the rows do not suffice for is a note, not an error."""
    from analysis.basis import bases_of
    from analysis.claims import judge
    from analysis.commands.pictures import cost_figures, crossover_figures
    from analysis.figure19 import Selection, panels
    from analysis.figures import draw_figure19
    from analysis.load import rows, unmeasured
    from analysis.published import load_published
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
        figures["figure19"] = draw_figure19(evidence.panels)
        maps, without = crossover_figures(evidence.bases)
        figures |= maps
        evidence.notes += without
    except NothingToDraw as error:
        evidence.missing = f"No comparison of swap and recompute: {error}."
    costs, without = cost_figures(evidence.frame, ("rates", "recompute", "generations"), with_cpu)
    evidence.notes += without
    evidence.verdicts = judge(evidence.frame, load_published())
    return evidence, figures | costs
