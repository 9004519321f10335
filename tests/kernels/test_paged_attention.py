"""Paged attention without a GPU: interpreted against a dense reference, and compiled for the chips it is meant for."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import Any

import pytest

from tests.running import run

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
compiles = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="TRITON_INTERPRET is set")
SHAPES = {"llama-3-8b": (32, 8, 128), "opt-13b": (40, 40, 128)}


@needs_triton
def test_it_agrees_with_dense_attention_in_the_interpreter() -> None:
    options = ("-q", "-p", "no:cacheprovider")
    done = run(
        "-m",
        "pytest",
        *options,
        "tests/kernels/interpreted_paged_attention.py",
        TRITON_INTERPRET="1",
        OMP_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr


def compiled(kernel: Any, pointers: dict[str, str], numbers: dict[str, str], options: dict[str, int], sm: int) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kernels.paged_attention import WARPS

    aligned = {(index,): [["tt.divisibility", 16]] for index in range(len(pointers))}
    for index, name in enumerate((*pointers, *numbers)):
        if name in ("q_row", "block_stride"):
            aligned[(index,)] = [["tt.divisibility", 16]]
    signature = pointers | numbers | dict.fromkeys(options, "constexpr")
    return triton.compile(
        ASTSource(kernel, signature, options, aligned),
        target=GPUTarget("cuda", sm, 32),
        options={"num_warps": WARPS, "enable_fp_fusion": True},
    )


@needs_triton
@compiles
@pytest.mark.parametrize("sm", [80, 90, 100])
@pytest.mark.parametrize("model", SHAPES)
def test_both_kernels_compile_and_read_blocks_sixteen_bytes_at_a_time(model: str, sm: int) -> None:
    from kernels.paged_attention import attend_part, join_parts, part_options

    options = part_options(*SHAPES[model], block_size=16, splits=8)
    pointers = dict.fromkeys(("q", "k_cache", "v_cache"), "*bf16")
    pointers |= {"table": "*i64", "contexts": "*i32", "part": "*fp32", "weight": "*fp32"}
    numbers = {"q_row": "i32", "block_stride": "i32", "table_row": "i32", "scale": "fp32"}
    text = compiled(attend_part, pointers, numbers, options, sm).asm["ptx"]
    assert re.search(r"(ld\.global|cp\.async\.cg\.shared\.global)[\w.:]*.*\b(v4\.b32|v2\.b64|0x10)", text)
    assert re.search(r"\b(mma|wgmma|tcgen05\.mma)\b", text) or "mma." in text

    joined = {"head_dim": 128, "splits": 8, "padded": 8, "columns": 128}
    pointers = {"part": "*fp32", "weight": "*fp32", "out": "*bf16"}
    assert "st.global" in compiled(join_parts, pointers, {}, joined, sm).asm["ptx"]
