"""`machine_info` of a result file: backend, GPU, link, host and software. Names no host and no user."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from bench.nvml import Nvml
from kernels import cuda_driver
from kernels.device import Device

PACKAGES = ("triton", "numpy", "numba", "pytest", "pytest-benchmark", "nvidia-ml-py")


def machine_info(
    device: Device, nvml: Nvml, link: dict[str, Any] | None, pinned_by: str | None, bound: bool
) -> dict[str, Any]:
    """Everything a reader needs to place the numbers. `link` was read while copies ran."""
    facts = device.facts()
    return {
        "backend": device.backend,
        "gpu": facts and facts | nvml.identity() | {"nvml": nvml.problem or "answers"},
        "link": link,
        "host": host(pinned_by, bound),
        "software": software(device, nvml),
    }


def host(pinned_by: str | None, bound: bool) -> dict[str, Any]:
    """CPU, memory, NUMA, limits; how host memory was pinned and whether the process was bound to the GPU's node."""
    page = os.sysconf("SC_PAGE_SIZE")
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "cpu": _cpuinfo("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": page * os.sysconf("SC_PHYS_PAGES"),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "kernel": platform.release(),
        "virtual": "hypervisor" in (_cpuinfo("flags") or "").split(),
        "wsl": "microsoft" in platform.release().lower(),
        "iommu": any(Path("/sys/class/iommu").glob("*")),
        "memlock_bytes": None if soft == resource.RLIM_INFINITY else soft,
        "pinned_by": pinned_by,
        "bound_to_gpu_node": bound,
        "torch_threads": torch.get_num_threads(),
    }


def software(device: Device, nvml: Nvml) -> dict[str, Any]:
    """Versions of what the numbers depend on, and the state of the working tree."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{package.replace("-", "_"): _version(package) for package in PACKAGES},
        "cuda_runtime": torch.version.cuda if device.backend == "cuda" else None,
        "cuda_driver": cuda_driver.driver_version() if device.backend == "cuda" else None,
        "driver": nvml.system("DriverVersion"),
        "git": _git("rev-parse", "--short=12", "HEAD"),
        "git_dirty": bool(_git("status", "--porcelain")),
    }


def peak_host_bytes() -> int:
    """Peak resident memory of this process (Linux counts KiB, macOS bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _cpuinfo(field: str) -> str | None:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        root = Path(__file__).parents[1]
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
