from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from kernels import cuda_driver, memcpy_batch_binding
from kernels.copy_methods import memcpy_batch, memcpy_batch_overlap
from kernels.memcpy_batch_binding import MemcpyAttributes, MemLocation
from kernels.pieces import Descriptors

HEADER = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include" / "cuda.h"


@pytest.fixture(autouse=True)
def _resolved_afresh() -> Iterator[None]:
    memcpy_batch_binding._resolved.cache_clear()
    yield
    memcpy_batch_binding._resolved.cache_clear()


def driver(monkeypatch: pytest.MonkeyPatch, version: int, call: Callable[..., int] | None = None) -> list[int]:
    """A driver of `version` that knows the batch call under any version asked for; the list says which was."""
    asked: list[int] = []

    def entry_point(name: str, wanted: int) -> int | None:
        assert name == "cuMemcpyBatchAsync"
        asked.append(wanted)
        return ctypes.cast(call, ctypes.c_void_p).value if call else 1  # type: ignore[arg-type]

    monkeypatch.setattr(cuda_driver, "driver_version", lambda: version)
    monkeypatch.setattr(cuda_driver, "entry_point", entry_point)
    return asked


@pytest.mark.parametrize(("version", "asked"), [(12080, [12080]), (12090, [12080]), (13000, [13000]), (13020, [13000])])
def test_a_driver_is_never_asked_for_a_call_newer_than_itself(
    monkeypatch: pytest.MonkeyPatch, version: int, asked: list[int]
) -> None:
    """It might answer with its own, whose arguments are others."""
    seen = driver(monkeypatch, version)
    assert memcpy_batch_binding.unavailable() is None
    assert seen == asked


def test_an_old_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver(monkeypatch, 12040) == []
    assert memcpy_batch_binding.unavailable() == "driver for CUDA 12.4: cuMemcpyBatchAsync came with CUDA 12.8"
    with pytest.raises(cuda_driver.DriverError, match=r"CUDA 12\.4: cuMemcpyBatchAsync came with"):
        memcpy_batch_binding.batch_copy(Descriptors(*[np.ones(1, dtype=np.uint64)] * 3), "swap_in", 64)


@pytest.mark.parametrize("version", [12080, 13000])
@pytest.mark.parametrize(("behind_writes", "order"), [(False, 3), (True, 1)])
@pytest.mark.parametrize("direction", ["swap_in", "swap_out"])
def test_what_the_driver_is_handed(
    monkeypatch: pytest.MonkeyPatch, version: int, direction: str, behind_writes: bool, order: int
) -> None:
    seen: list[tuple[int, ...]] = []

    def call(dst: int, src: int, sizes: int, count: int, attributes: int, indices: int, entries: int, *end: int) -> int:
        entry = MemcpyAttributes.from_address(attributes)
        index = ctypes.c_size_t.from_address(indices).value
        seen.append((dst, src, sizes, count, entry.src_access_order, entry.flags, index, entries, end[-1]))
        if len(end) == 2:
            ctypes.c_size_t.from_address(end[0]).value = 1
        return 1

    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    fail_index = [pointer] if version == 12080 else []
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int, pointer, pointer, pointer, size, pointer, pointer, size, *fail_index, ctypes.c_uint64
    )
    function = prototype(call)
    driver(monkeypatch, version, function)
    monkeypatch.setattr(cuda_driver, "_library", lambda: ctypes.CDLL(None))
    monkeypatch.setattr(cuda_driver, "check", lambda code, what: seen.append((code, what)))
    arrays = Descriptors(*(np.array([n, n + 1, n + 2], dtype=np.uint64) for n in (1, 2, 3)))
    memcpy_batch_binding.batch_copy(arrays, direction, 64, 1, behind_writes)()
    addresses = (arrays.dst.ctypes.data, arrays.src.ctypes.data, arrays.sizes.ctypes.data)
    where = " at copy 1" if version == 12080 else ""
    assert seen == [(*addresses, 3, order, 1, 0, 1, 64), (1, f"cuMemcpyBatchAsync of 3 copies ({direction}){where}")]


def test_the_hint_is_a_method_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(memcpy_batch, "prepare", lambda plan, device, flags=0: calls.append(flags))
    memcpy_batch_overlap.prepare(None, None)  # type: ignore[arg-type]
    assert calls == [1]
    assert memcpy_batch_overlap.unavailable is memcpy_batch.unavailable


@pytest.mark.skipif(not HEADER.is_file(), reason=f"no CUDA headers: {HEADER}")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_structure_and_values_are_those_of_cuda_h(tmp_path: Path) -> None:
    fields = {"srcAccessOrder": "src_access_order", "srcLocHint": "src_location", "dstLocHint": "dst_location"}
    facts = {
        "sizeof(CUmemcpyAttributes)": ctypes.sizeof(MemcpyAttributes),
        "sizeof(CUmemLocation)": ctypes.sizeof(MemLocation),
        "offsetof(CUmemLocation, id)": MemLocation.id.offset,
        "sizeof(size_t)": np.dtype(np.uint64).itemsize,
        "sizeof(CUdeviceptr)": np.dtype(np.uint64).itemsize,
        "CU_MEMCPY_SRC_ACCESS_ORDER_STREAM": memcpy_batch_binding.ORDER_STREAM,
        "CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL": memcpy_batch_binding.ORDER_DURING_API_CALL,
        "CU_MEMCPY_SRC_ACCESS_ORDER_ANY": memcpy_batch_binding.ORDER_ANY,
        "CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE": memcpy_batch_binding.PREFER_OVERLAP_WITH_COMPUTE,
        "CU_POINTER_ATTRIBUTE_DEVICE_POINTER": cuda_driver.DEVICE_POINTER,
    }
    for name, ours in (fields | {"flags": "flags"}).items():
        facts[f"offsetof(CUmemcpyAttributes, {name})"] = getattr(MemcpyAttributes, ours).offset
    asserts = "".join(
        f'_Static_assert({expression} == {value}, "{expression}");\n' for expression, value in facts.items()
    )
    source = tmp_path / "layout.c"
    source.write_text(f"#include <cuda.h>\n#include <stddef.h>\n{asserts}", encoding="utf-8")
    done = subprocess.run(
        ["gcc", "-fsyntax-only", f"-I{HEADER.parent}", str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
