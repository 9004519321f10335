"""The packages are ours: PyPI has a `kernels` of its own, which transformers looks for."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["kernels", "bench", "analysis"])
def test_the_imported_package_is_ours(name: str) -> None:
    module = importlib.import_module(name)
    assert Path(str(module.__file__)).resolve().parent == ROOT / name


def test_transformers_imports_and_does_not_take_our_kernels_for_the_hub_package() -> None:
    pytest.importorskip("transformers")
    from transformers.utils import import_utils

    importlib.import_module("transformers.models.llama.modeling_llama")
    assert not import_utils.is_kernels_available()
