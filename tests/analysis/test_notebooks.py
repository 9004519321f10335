"""The notebooks run from any folder, and are committed without outputs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "analysis" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CELL_SECONDS = 120

pytest.importorskip("ipykernel", reason="ipykernel runs the notebooks; it is in the dev group")
nbformat = pytest.importorskip("nbformat", reason="nbformat reads the notebooks; it is in the dev group")


def opened(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def test_all_three_are_there() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03"]


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
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_from_any_folder(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    monkeypatch.setenv("MPLCONFIGDIR", os.environ.get("MPLCONFIGDIR", str(tmp_path)))
    resources = {"metadata": {"path": str(tmp_path)}}
    notebook = opened(path)
    NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) or "text/html" in output.get("data", {}) for output in outputs)
