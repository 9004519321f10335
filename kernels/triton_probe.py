"""Can Triton kernels run on this device? Answered before a method needs one, as text for the result file."""

from __future__ import annotations

import subprocess

from kernels.device import Device


def no_kernels(device: Device) -> str | None:
    """Why Triton kernels cannot run on `device`; None if they can.

    Compiles, loads and launches the copy kernel on nothing: an old driver, a missing C compiler or a chip that the
    bundled assembler does not know show only then (pytorch#130684, trak#68, triton#10152).
    """
    if device.backend == "cpu":
        return "kernels need a CUDA device"
    try:
        from kernels import triton_copy
    except ImportError as error:
        return f"Triton cannot be imported: {error}"
    try:
        triton_copy.probe(device)
    except (RuntimeError, OSError, subprocess.SubprocessError, triton_copy.TritonError) as error:
        detail = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return f"a Triton {triton_copy.TRITON_VERSION} kernel does not load (driver too old?): {detail.strip()}"
    return None
