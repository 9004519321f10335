"""Who only reads results needs no GPU stack."""

from __future__ import annotations

import subprocess
import sys

EVERY_MODULE = """
import importlib, pkgutil, sys
import analysis, kernels.hf_config, kernels.shapes, kernels.specs
for module in pkgutil.walk_packages(analysis.__path__, "analysis."):
    importlib.import_module(module.name)
print(sorted({"torch", "triton", "numba", "pynvml", "pytest"} & set(sys.modules)))
"""


def test_no_module_of_analysis_imports_what_only_measuring_needs() -> None:
    done = subprocess.run([sys.executable, "-c", EVERY_MODULE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
