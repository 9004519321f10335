"""What a machine is called: GPU, link and driver, never its host name.

Cloud and CI hosts get a new name every day, and clock speeds differ each run; GPU, link and driver are what a
result depends on.
"""

from __future__ import annotations

from typing import Any


def machine_label(machine_info: dict[str, Any]) -> str:
    """The label that results of one kind of machine share.

    Parameters
    ----------
    machine_info : dict
        As a result file has it: `backend`, `gpu`, `link`, `host`, `software`.

    Returns
    -------
    str
        "NVIDIA A100-SXM4-40GB, PCIe 4 x16, driver 580.65"; facts the driver did not give are left out.
        "CPU: <model>" on a CPU.
    """
    if machine_info["backend"] == "cpu":
        return f"CPU: {_cpu_model(machine_info)}"
    link, driver = machine_info["link"] or {}, machine_info["software"].get("driver")
    parts = [str(machine_info["gpu"]["name"]), _pcie(link), f"driver {driver}" if driver else ""]
    return ", ".join(part for part in parts if part)


def _pcie(link: dict[str, Any]) -> str:
    generation, width = link.get("pcie_generation"), link.get("pcie_width")
    known = [f"{generation}" if generation else "", f"x{width}" if width else ""]
    return " ".join(["PCIe", *filter(None, known)]) if any(known) else ""


def _cpu_model(machine_info: dict[str, Any]) -> str:
    theirs = machine_info.get("cpu")  # pytest-benchmark's own, from py-cpuinfo
    brand = theirs.get("brand_raw") if isinstance(theirs, dict) else None
    return str(machine_info["host"].get("cpu") or brand or "unknown model")
