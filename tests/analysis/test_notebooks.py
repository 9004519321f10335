"""The notebooks run from any folder, on a result file and on none, and are committed without outputs."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

from analysis.contract import SCHEMA_PATH

FOLDER = Path(__file__).resolve().parents[2] / "analysis" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MEASURED = [str(SCHEMA_PATH.parent / "cpu-epyc-2-cores.json")]
CELL_SECONDS = 120

pytest.importorskip("ipykernel", reason="ipykernel runs the notebooks; it is in the dev group")
nbformat = pytest.importorskip("nbformat", reason="nbformat reads the notebooks; it is in the dev group")


def opened(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def on_files(notebook: Any, files: list[str]) -> list[Any]:
    """Its cells, with another list of files at the top."""
    cells = copy.deepcopy(notebook.cells)
    top = next(cell for cell in cells if cell.cell_type == "code")
    lines = top.source.splitlines()
    assert sum(line.startswith("FILES = ") for line in lines) == 1
    top.source = "\n".join(f"FILES = {files}" if line.startswith("FILES = ") else line for line in lines)
    return cells


def test_the_questions_have_a_notebook_each() -> None:
    names = {path.stem for path in NOTEBOOKS}
    assert names >= {"01-figure19", "02-hardware-generations", "03-crossover", "04-claims", "05-recoveries"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_thin_and_without_outputs(path: Path) -> None:
    notebook = opened(path)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert max(len(cell.source.splitlines()) for cell in code) <= 12


# What jupyter's own packages warn of when a kernel starts or ends is not this suite's business.
@pytest.mark.filterwarnings("default")
def test_they_run_from_any_folder_on_no_file_and_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one kernel, which imports pandas and scipy once; its names are forgotten before each run."""
    from nbclient import NotebookClient

    monkeypatch.setenv("MPLCONFIGDIR", os.environ.get("MPLCONFIGDIR", str(tmp_path)))
    runs = {(path.stem, len(files)): on_files(opened(path), files) for path in NOTEBOOKS for files in ([], MEASURED)}
    everything = nbformat.v4.new_notebook()
    for cells in runs.values():
        everything.cells += [nbformat.v4.new_code_cell("%reset -f"), *cells]
    for number, cell in enumerate(everything.cells):
        cell.id = f"cell-{number}"
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(everything, timeout=CELL_SECONDS, kernel_name="python3", resources=resources).execute()
    for run, cells in runs.items():
        shown = [output.get("data", {}).keys() for cell in cells for output in cell.get("outputs", ())]
        assert any(kinds & {"image/png", "text/html"} for kinds in shown), run
