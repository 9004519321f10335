"""Copy methods: ways to carry out a copy plan. One module a method, each with the two functions of `CopyMethod`.

To add one: write `kernels/copy_methods/<name>.py` and put its name into `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, cast

from kernels.copy_plan import CopyPlan
from kernels.device import Device

METHODS = (
    "contiguous",
    "direct_kernel",
    "gather_copy",
    "memcpy_batch",
    "memcpy_batch_overlap",
    "memcpy_loop",
    "torch_copy",
)

Issue = Callable[[], object]


class CopyMethod(Protocol):
    """What a method's module offers."""

    def unavailable(self, device: Device) -> str | None:
        """Why the method cannot run on `device`; None if it can."""

    def prepare(self, plan: CopyPlan, device: Device, **options: int) -> Issue:
        """A callable that enqueues the whole plan on the device's stream, allocates nothing and does not wait.

        A method's own options (`programs`, `staging_bytes`) have defaults.

        Building and uploading descriptors happens here, outside the clocks. What the callable knows of its way (copies,
        launches, staging bytes ...) are attributes of it, which its class documents.
        """


def find(name: str) -> CopyMethod:
    """The method called `name`; ValueError lists the known ones. Its module is imported only now."""
    if name not in METHODS:
        raise ValueError(f"unknown copy method {name!r}; known: {', '.join(METHODS)}")
    return cast("CopyMethod", import_module(f"{__name__}.{name}"))
