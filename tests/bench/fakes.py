"""Stand-ins for what the bench meets: a benchmark fixture, and files of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class FakeBenchmark:
    """pytest-benchmark's pedantic mode in ten lines."""

    disabled: bool = False
    rounds: int = 0
    stats: Any = field(default_factory=lambda: SimpleNamespace(stats=SimpleNamespace(data=[])))
    extra_info: dict[str, Any] = field(default_factory=dict)

    def pedantic(
        self,
        target: Callable[[], object],
        setup: Callable[[], object],
        teardown: Callable[[], object],
        rounds: int,
        iterations: int,
    ) -> None:
        self.rounds = 1 if self.disabled else rounds
        for _ in range(self.rounds):
            setup()
            start = time.perf_counter()
            target()
            self.stats.stats.data.append(time.perf_counter() - start)
            if not self.disabled:
                teardown()
