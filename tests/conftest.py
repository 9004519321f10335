"""GPU tests run where torch finds a CUDA GPU and are skipped elsewhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

# Tests assert behaviour, never speed; the first example compiles a loop or imports a library.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU"))
