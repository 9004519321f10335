"""Every copy method under a stand-in GPU: the bytes, and what is asked of the driver. Skipped where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kernels.copy_methods import METHODS
from tests.running import STANDIN, run

pytestmark = [
    pytest.mark.standin,
    pytest.mark.skipif(not STANDIN.is_file(), reason="no stand-in GPU beside this checkout"),
]
BATCH = {"memcpy_batch", "memcpy_batch_overlap"}
Case = dict[str, Any]


def report(what: str, **environment: str) -> dict[str, Any]:
    done = run("-W", "error", "-m", "tests.standin.every_method", what, standin=True, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def counts() -> dict[str, Any]:
    """Kernels compiled for the stand-in's chip and launched, which does nothing there; a driver of CUDA 13."""
    return report("counts")


@pytest.fixture(scope="module")
def of(counts: dict[str, Any]) -> Callable[[str], list[Case]]:
    return lambda method: [case for case in counts["cases"] if case["method"] == method]


def test_the_bytes_arrive_by_every_method() -> None:
    """On a driver of CUDA 12.8, whose batch call has one argument more; copies take long enough to be overtaken."""
    result = report("bytes", TRITON_INTERPRET="1", FAKEGPU_DRIVER="12080", FAKEGPU_COPY_US="300")
    assert [case for case in result["cases"] if "wrong" in case or "unavailable" in case] == []
    assert {case["method"] for case in result["cases"]} == set(METHODS)
    assert result["fail_index"] is True
    assert result["empty_plan_does_work"] == []


def test_a_driver_without_the_batch_call_is_a_reason_and_never_a_loop() -> None:
    result = report("counts", FAKEGPU_DRIVER="12040")
    without = [case for case in result["cases"] if "unavailable" in case]
    assert {case["method"] for case in without} == BATCH
    assert {case["unavailable"] for case in without} == {"driver for CUDA 12.4: cuMemcpyBatchAsync came with CUDA 12.8"}
    assert not any("facts" in case for case in without)
    assert sum(case.get("batches", 0) for case in result["cases"]) == 0


def test_an_empty_plan_asks_nothing(counts: dict[str, Any]) -> None:
    assert counts["empty_plan_does_work"] == []


def test_every_byte_crosses_the_link_once(counts: dict[str, Any]) -> None:
    for case in counts["cases"]:
        by_kernel = case["method"] == "direct_kernel"  # which no copy engine sees
        assert case["bytes"] == (0 if by_kernel else case["nbytes"]), case


def test_a_batch_is_one_call(counts: dict[str, Any], of: Callable[[str], list[Case]]) -> None:
    """On a driver of CUDA 13, by the shorter signature."""
    assert counts["fail_index"] is False
    for method, flags in (("memcpy_batch", 0), ("memcpy_batch_overlap", 1)):
        for case in of(method):
            assert case["facts"] == {"calls": 1, "copies": case["descriptors"], "flags": flags}
            assert (case["batches"], case["kernels"], case["copies"]) == (1, 0, case["descriptors"])
    assert all(case["batches"] == 0 for case in counts["cases"] if case["method"] not in BATCH)


def test_a_loop_is_a_copy_a_descriptor(of: Callable[[str], list[Case]]) -> None:
    for case in of("memcpy_loop") + of("torch_copy"):
        assert (case["copies"], case["kernels"]) == (case["descriptors"], 0)
    assert {(case["copies"], case["kernels"]) for case in of("contiguous")} == {(1, 0)}


def test_a_direct_kernel_is_one_launch_and_no_copy(of: Callable[[str], list[Case]]) -> None:
    for case in of("direct_kernel"):
        assert (case["copies"], case["kernels"]) == (0, 1)
        assert case["facts"]["programs"] == case.get("programs", 16)
        assert (case["facts"]["launches"], case["facts"]["word_bytes"]) == (1, 16)


def test_gathering_makes_few_copies(of: Callable[[str], list[Case]]) -> None:
    """One for each half that is filled, and one more for each further stretch of the host."""
    for case in of("gather_copy"):
        facts = case["facts"]
        halves, stretches = -(-case["nbytes"] // facts["half_bytes"]), case["host_stretches"]
        assert (case["copies"], case["kernels"]) == (facts["copies"], halves)
        assert max(halves, stretches) <= case["copies"] <= case["nbytes"] // facts["half_bytes"] + stretches
        assert facts["staging_bytes"] == min(2 * facts["half_bytes"], case["nbytes"])
    together = [case for case in of("gather_copy") if case["host_stretches"] == 1]
    assert {case["device"] for case in together} == {"contiguous", "scattered"}
    assert all(case["copies"] == case["kernels"] for case in together)
