"""Runs the project's own commands in a process of their own, from the root of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STANDIN = ROOT.parent / "shared" / "fakegpu" / "run"


def run(*command: str, standin: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """The finished process; `standin` runs it as if there were a CUDA GPU."""
    prefix = [str(STANDIN)] if standin else []
    hidden = {} if standin else {"CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [*prefix, sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"PYTHON": sys.executable} | hidden | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def bench(*arguments: str, standin: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """`pytest bench/` with the tiny model known."""
    options = ("-m", "pytest", "-p", "tests.tiny_model", "-p", "no:cacheprovider")
    return run(*options, *(arguments or ("bench/",)), standin=standin, **environment)
