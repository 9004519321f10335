"""Runs the project's own commands in a process of their own, from the root of the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STANDIN = ROOT.parent / "shared" / "fakegpu" / "run"


def inherited() -> dict[str, str]:
    """The environment without what tells a process that it is a worker of the tests' own pytest."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def run(*command: str, standin: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """The finished process; `standin` runs it as if there were a CUDA GPU."""
    prefix = [str(STANDIN)] if standin else []
    hidden = {} if standin else {"CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [*prefix, sys.executable, *command],
        cwd=ROOT,
        env=inherited() | {"PYTHON": sys.executable} | hidden | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def bench(*arguments: str, standin: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """`pytest bench/` with the tiny model known."""
    options = ("-m", "pytest", "-p", "tests.tiny_model", "-p", "no:cacheprovider")
    return run(*options, *(arguments or ("bench/",)), standin=standin, **environment)


EACH = """
import contextlib, io, json, sys
import pytest
finished = []
for arguments in json.load(sys.stdin):
    terminal = io.StringIO()
    with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal):
        code = int(pytest.main(["-p", "tests.tiny_model", "-p", "no:cacheprovider", *arguments]))
    finished.append([code, terminal.getvalue()])
print("\\n" + json.dumps(finished))
"""


def each_run(*runs: list[str], **environment: str) -> list[tuple[int, str]]:
    """Exit code and terminal of several runs of `pytest`, in turn, in one process that imports torch once."""
    done = subprocess.run(
        [sys.executable, "-c", EACH],
        cwd=ROOT,
        env=inherited() | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)} | environment,
        input=json.dumps(runs),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return [(code, terminal) for code, terminal in json.loads(done.stdout.splitlines()[-1])]
