from __future__ import annotations

import itertools

import pytest
import torch

from bench import sweep
from bench.measure import Recompiled, measure
from bench.rows import Work
from bench.session import Session
from kernels.device import open_device
from tests.bench.fakes import FakeBenchmark


def test_what_compiles_in_a_round_raises_and_what_compiled_before_does_not() -> None:
    """`dynamic=False`: each size is compiled for itself, and the first one with its warm-up."""

    @torch.compile(backend="eager", dynamic=False)
    def add_one(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    sizes = itertools.count(2)
    measure(FakeBenchmark(), lambda: add_one(torch.zeros(1)), open_device("cpu"), budget_s=0.01)
    with pytest.raises(Recompiled, match=r"torch.compile ran \d+ times while rounds were timed"):
        measure(FakeBenchmark(), lambda: add_one(torch.zeros(next(sizes))), open_device("cpu"), budget_s=0.01)


def test_a_session_keeps_no_row_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = itertools.count()
    session, benchmark = Session(sweep.load("cpu"), "cpu", 0, []), FakeBenchmark()
    case = next(case for case in session.cases.values() if case.recovery == "recompute")
    session.order = {case.id: 0}
    monkeypatch.setattr("bench.measure.compilations", lambda: next(counts))
    with pytest.raises(Recompiled):
        session.time_case(case, benchmark, lambda: None, Work(flops=1), prepare_s=0.0, verified=False, detail={})
    assert session.rows == []
    assert benchmark.extra_info == {}
