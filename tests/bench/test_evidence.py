from __future__ import annotations

from typing import Any

import pytest

from bench.evidence import bits_of, snapshot, suspect_reasons
from bench.machine import host, machine_info
from bench.nvml import Nvml
from kernels.device import open_device

CLEAN: dict[str, Any] = {
    "sm_clock_mhz": 1410,
    "memory_clock_mhz": 1593,
    "power_mw": 90000,
    "temperature_c": 40,
    "clock_event_reasons": 0,
    "processes": 1,
    "pcie_generation": 4,
    "pcie_generation_max": 4,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "load_per_core": 0.1,
}


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ({"clock_event_reasons": 0x4}, "clocks held down: software power cap"),
        ({"clock_event_reasons": 0x48}, "clocks held down: hardware slowdown"),
        ({"clock_event_reasons": 0x80}, "clocks held down: power brake"),
        ({"pcie_generation": 1}, "PCIe generation 1 of 4"),
        ({"pcie_width": 8}, "PCIe width 8 of 16"),
        ({"processes": 2}, "another process uses the GPU"),
    ],
)
def test_what_disturbs_is_named(after: dict[str, Any], reason: str) -> None:
    assert reason in suspect_reasons(CLEAN, CLEAN | after)


def test_a_busy_host_is_named() -> None:
    assert suspect_reasons(CLEAN | {"load_per_core": 2.0}, CLEAN) == [
        "host is busy: more than 1.25 runnable tasks a core"
    ]


@pytest.mark.parametrize("after", [{}, {"clock_event_reasons": 0x1}, {"clock_event_reasons": 0x2}])
def test_idle_and_application_clocks_are_no_disturbance(after: dict[str, Any]) -> None:
    assert suspect_reasons(CLEAN, CLEAN | after) == []


def test_no_answer_is_no_reason() -> None:
    silent = dict.fromkeys(CLEAN) | {"load_per_core": 0.0}
    assert suspect_reasons(silent, silent) == []
    assert set(bits_of(silent).values()) == {None}


def test_without_a_gpu_nothing_is_asked() -> None:
    nvml = Nvml(None, present=False)
    assert nvml.problem is None
    assert nvml.link()["pcie_generation"] is None
    assert snapshot(nvml)["sm_clock_mhz"] is None
    assert not nvml.bind_host()


def test_machine_info_of_a_cpu_names_no_host_and_no_gpu() -> None:
    info = machine_info(open_device("cpu"), Nvml(None, present=False), None, None, False)
    assert (info["backend"], info["gpu"], info["link"]) == ("cpu", None, None)
    assert info["software"]["cuda_driver"] is None
    assert info["software"]["torch"]
    assert host(None, False)["cores"]
