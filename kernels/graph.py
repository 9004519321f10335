"""A graph of anything that is issued on one stream: recorded once, enqueued by one call from then on.

A prefill enqueues some ten kernels a layer, each by a call from Python, and a short one would be over before the host
is done: its rounds would time Python. Serving engines replay a CUDA graph there (vLLM, SGLang), and so does the bench.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from kernels.device import Device, NotCaptured, T

__all__ = ["Graph", "capture"]


@dataclass(frozen=True, eq=False)
class Graph(Generic[T]):
    """An issue recorded by `capture`; the issue itself where it could not be.

    A recording holds the memory of everything its issue allocates for as long as it lives: drop it with its case.

    Attributes
    ----------
    device : Device
        Whose stream it runs on.
    plain : callable
        The issue. What it is bound to lives as long as the graph, which reads and writes the same addresses.
    recorded : tuple or None
        What enqueues the recording, and what the issue returned when it was made.
    refusal : str or None
        Why there is no recording.
    """

    device: Device
    plain: Callable[[], T]
    recorded: tuple[Callable[[], None], T] | None
    refusal: str | None

    def issue(self) -> T:
        """Enqueue all of it on the device's stream.

        Returns
        -------
        T
            What the issue returns. Of a recording these are the same tensors every time, each time written anew.
        """
        if self.recorded is None:
            return self.plain()
        replay, output = self.recorded
        self.device.enqueue(replay)
        return output


def capture(device: Device, issue: Callable[[], T]) -> Graph[T]:
    """Record `issue`, which only enqueues, and on no stream but the device's own.

    It is run once before that; where the device records nothing (a CPU) it is not run.
    """
    try:
        return Graph(device, issue, device.capture(issue), None)
    except NotCaptured as refusal:
        return Graph(device, issue, None, str(refusal))
