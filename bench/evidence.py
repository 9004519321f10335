"""What the machine was doing while a case ran, and the reasons that follow to distrust it."""

from __future__ import annotations

import os
from typing import Any

from bench.nvml import THROTTLES, Nvml

LOAD_PER_CORE = 1.25


def snapshot(nvml: Nvml) -> dict[str, Any]:
    """State of GPU, link and host: plain values, None where nothing answers."""
    return nvml.state() | nvml.link() | {"load_per_core": round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)}


def suspect_reasons(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Reasons to distrust what was timed between two snapshots. The link is judged after, while it is still awake."""
    reasons = [*_throttles(after), *_link(after)]
    if max(before["processes"] or 0, after["processes"] or 0) > 1:
        reasons.append("another process uses the GPU")
    if before["load_per_core"] > LOAD_PER_CORE:
        reasons.append(f"host is busy: more than {LOAD_PER_CORE} runnable tasks a core")
    return reasons


def _throttles(state: dict[str, Any]) -> list[str]:
    bits = state["clock_event_reasons"] or 0
    return [f"clocks held down: {name}" for bit, name in THROTTLES.items() if bits & bit]


def _link(state: dict[str, Any]) -> list[str]:
    reasons = []
    for what, now, most in (
        ("generation", "pcie_generation", "pcie_generation_max"),
        ("width", "pcie_width", "pcie_width_max"),
    ):
        if state[now] is not None and state[most] is not None and state[now] < state[most]:
            reasons.append(f"PCIe {what} {state[now]} of {state[most]}")
    return reasons


def bits_of(state: dict[str, Any]) -> dict[str, Any]:
    """The part of a snapshot that goes into a row: what can differ from case to case."""
    return {name: state[name] for name in ("sm_clock_mhz", "power_mw", "temperature_c", "clock_event_reasons")}
