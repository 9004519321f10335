"""What NVML says of the GPU, each question guarded alone: on VMs, MIG, vGPU and GB10 some have no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# nvml.h, nvmlClocksEventReasons. Idle and application clocks are no disturbance and are left out.
THROTTLES = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


class Nvml:
    """One GPU seen through nvidia-ml-py. Without a driver or the package, every answer is None and `problem` says why.

    Parameters
    ----------
    uuid : str or None
        As torch gives it. The index is no key: CUDA_VISIBLE_DEVICES renumbers CUDA's devices, not NVML's.
    present : bool
        False where the run uses no GPU: nothing is asked.
    """

    def __init__(self, uuid: str | None, present: bool = True) -> None:
        self.problem: str | None = None
        self._nvml: Any = None
        self._handle: Any = None
        if not present:
            return
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handle = _handle(pynvml, uuid)
        except Exception as error:  # guards NVML only: no package, no library, no driver, a name it does not know
            self.problem = f"NVML: {type(error).__name__}: {error}"

    def ask(self, question: str, *arguments: Any) -> Any:
        """The answer of `nvmlDeviceGet<question>`, or None where it is not supported."""
        return self._guarded(lambda: getattr(self._nvml, f"nvmlDeviceGet{question}")(self._handle, *arguments))

    def system(self, question: str) -> Any:
        """The answer of `nvmlSystemGet<question>`, or None."""
        return self._guarded(lambda: getattr(self._nvml, f"nvmlSystemGet{question}")())

    def bind_host(self) -> bool:
        """Keep this process on the CPUs nearest to the GPU, so that pinned pages are touched on its NUMA node."""
        bind = self._guarded(lambda: self._nvml.nvmlDeviceSetCpuAffinity(self._handle) or True)
        return bind is True

    def link(self) -> dict[str, int | None]:
        """Generation and width of the PCIe link, now and at most. An idle link may show a lower generation."""
        return {
            "pcie_generation": self.ask("CurrPcieLinkGeneration"),
            "pcie_generation_max": self.ask("MaxPcieLinkGeneration"),
            "pcie_width": self.ask("CurrPcieLinkWidth"),
            "pcie_width_max": self.ask("MaxPcieLinkWidth"),
        }

    def state(self) -> dict[str, int | None]:
        """Clocks (MHz), power (mW), temperature (Celsius), throttle bits and how many processes use the GPU."""
        processes = self.ask("ComputeRunningProcesses")
        return {
            "sm_clock_mhz": self.ask("ClockInfo", 1),  # NVML_CLOCK_SM
            "memory_clock_mhz": self.ask("ClockInfo", 2),  # NVML_CLOCK_MEM
            "power_mw": self.ask("PowerUsage"),
            "temperature_c": self.ask("Temperature", 0),  # NVML_TEMPERATURE_GPU
            "clock_event_reasons": self.ask("CurrentClocksEventReasons"),
            "processes": None if processes is None else len(processes),
        }

    def identity(self) -> dict[str, Any]:
        """What does not change while the suite runs."""
        ecc, mig = self.ask("EccMode"), self.ask("MigMode")
        return {
            "ecc": None if ecc is None else bool(ecc[0]),
            "mig": None if mig is None else bool(mig[0]),
            "power_limit_mw": self.ask("EnforcedPowerLimit"),
            "max_sm_clock_mhz": self.ask("MaxClockInfo", 1),
            "numa_node": self.ask("NumaNodeId"),
            "persistence": self.ask("PersistenceMode"),
            "vbios": self.ask("VbiosVersion"),
        }

    def _guarded(self, call: Callable[[], Any]) -> Any:
        if self._handle is None:
            return None
        try:
            return call()
        except Exception:  # guards NVML only: NotSupported, NoPermission, a function the library lacks
            return None


def _handle(pynvml: Any, uuid: str | None) -> Any:
    """By UUID; by index only where torch gives no UUID and there is one GPU."""
    if uuid:
        return pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
    if pynvml.nvmlDeviceGetCount() == 1:
        return pynvml.nvmlDeviceGetHandleByIndex(0)
    raise LookupError("torch gives no UUID and there are several GPUs")
