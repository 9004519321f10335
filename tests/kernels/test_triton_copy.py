"""The copy kernel without a GPU: interpreted byte for byte, and compiled for the chips it is meant for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kernels.pieces import GROUP_BYTES, SMALLEST_PIECE, WORDS, group_bytes
from kernels.triton_probe import no_kernels
from tests.running import run

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
compiles = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="TRITON_INTERPRET is set")
ACCESS = re.compile(r"\b((?:ld|st)\.global[\w.:]*)")
PIECES = (SMALLEST_PIECE, 2048, GROUP_BYTES)


@needs_triton
def test_every_byte_in_the_interpreter() -> None:
    options = ("-q", "-p", "no:cacheprovider")
    done = run("-m", "pytest", *options, "tests/kernels/interpreted_triton_copy.py", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout + done.stderr


def compiled(sm: int, word: int, piece_bytes: int) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kernels.triton_copy import WARPS, copy_pieces

    shapes = {"word": word, "piece_bytes": piece_bytes, "group_bytes": group_bytes(word)}
    signature = {"table": "*i64", "pieces": "i32"} | dict.fromkeys(shapes, "constexpr")
    return triton.compile(
        ASTSource(copy_pieces, signature, shapes),
        target=GPUTarget("cuda", sm, 32),
        options={"num_warps": WARPS, "enable_fp_fusion": False},
    )


@needs_triton
@compiles
@pytest.mark.parametrize(("sm", "piece_bytes"), list(product([80, 90, 100], PIECES)))
def test_aligned_bytes_move_sixteen_at_a_time(sm: int, piece_bytes: int) -> None:
    accesses = Counter(ACCESS.findall(compiled(sm, 16, piece_bytes).asm["ptx"]))
    wide = {name: count for name, count in accesses.items() if ".v2.b64" in name or ".v4.b32" in name}
    # 256 threads move a group of 16 KiB in four accesses each; everything else reads the table of addresses.
    assert sorted(wide.values()) == [4, 4]
    assert {name.split(".")[0] for name in wide} == {"ld", "st"}
    assert [name for name in accesses if name not in wide] == ["ld.global.b64"]


@needs_triton
@compiles
@pytest.mark.parametrize(("word", "kind"), [(8, "b64"), (4, "b32"), (1, "b8")])
def test_other_bytes_move_in_their_word(word: int, kind: str) -> None:
    accesses = Counter(ACCESS.findall(compiled(80, word, 2048).asm["ptx"]))
    each = group_bytes(word) // 256 // word
    assert (accesses[f"ld.global.cg.{kind}"], accesses[f"st.global.cg.{kind}"]) == (each, each)


@needs_triton
@compiles
@pytest.mark.parametrize("sm", [80, 90, 100])
def test_nothing_spills(sm: int, tmp_path: Path) -> None:
    """The assembler's own report, on every word and the smallest and largest piece."""
    from triton.backends.nvidia.compiler import get_ptxas

    try:
        ptxas = get_ptxas(sm).path
    except (RuntimeError, TypeError) as error:
        pytest.skip(f"no assembler for sm_{sm} in this Triton: {error}")
    for word in WORDS:
        for piece_bytes in (SMALLEST_PIECE, group_bytes(word)):
            text = compiled(sm, word, piece_bytes).asm["ptx"]
            source = tmp_path / "kernel.ptx"
            source.write_text(text, encoding="utf-8")
            target = re.search(r"^\.target (\w+)", text, re.MULTILINE)
            assert target is not None
            command = [ptxas, "-v", f"--gpu-name={target[1]}", str(source), "-o", str(tmp_path / "kernel.cubin")]
            report = subprocess.run(command, capture_output=True, text=True, check=False).stderr
            spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
            assert spilled is not None, report
            assert spilled.groups() == ("0", "0"), (word, piece_bytes, report)


class _Cuda:
    backend = "cuda"


def test_absent_triton_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import kernels

    monkeypatch.setitem(sys.modules, "kernels.triton_copy", None)
    monkeypatch.delattr(kernels, "triton_copy", raising=False)
    reason = no_kernels(_Cuda())  # type: ignore[arg-type]
    assert reason is not None
    assert reason.startswith("Triton cannot be imported: ")


@needs_triton
def test_a_kernel_that_does_not_load_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels import triton_copy

    def probe(device: Any) -> None:
        raise RuntimeError("\nPTX was compiled with an unsupported toolchain\nmore")

    monkeypatch.setattr(triton_copy, "probe", probe)
    reason = no_kernels(_Cuda())  # type: ignore[arg-type]
    assert reason is not None
    assert reason.endswith(" (driver too old?): PTX was compiled with an unsupported toolchain")
