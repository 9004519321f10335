"""The kernel that writes K and V without a GPU: interpreted bit for bit, and compiled for the chips it is meant for."""

from __future__ import annotations

import os
import re
from collections import Counter
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from kernels.device import open_device
from kernels.kv_writer import index_put, usable_writer
from tests.running import run

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
compiles = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="TRITON_INTERPRET is set")
ACCESS = re.compile(r"\b((?:ld|st)\.global[\w.:]*)")


@needs_triton
def test_every_bit_in_the_interpreter() -> None:
    options = ("-q", "-p", "no:cacheprovider")
    done = run(
        "-m", "pytest", *options, "tests/kernels/interpreted_triton_kv.py", TRITON_INTERPRET="1", OMP_NUM_THREADS="1"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def compiled(sm: int, width: int) -> Any:
    """For bfloat16, with pointers and strides that are multiples of 16, as a model's are."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kernels.triton_kv import WARPS, tile_of, write_kv_kernel

    rows, columns = tile_of(width, 2)
    shapes = {"width": width, "rows": rows, "columns": columns}
    pointers = dict.fromkeys(("k", "v", "k_cache", "v_cache"), "*i16") | {"blocks": "*i64", "offsets": "*i64"}
    numbers = dict.fromkeys(("k_row", "v_row", "block_stride", "tokens"), "i32")
    aligned = {(index,): [["tt.divisibility", 16]] for index in range(9)}
    return triton.compile(
        ASTSource(write_kv_kernel, pointers | numbers | dict.fromkeys(shapes, "constexpr"), shapes, aligned),
        target=GPUTarget("cuda", sm, 32),
        options={"num_warps": WARPS, "enable_fp_fusion": False},
    )


@needs_triton
@compiles
@pytest.mark.parametrize("sm", [80, 90, 100])
@pytest.mark.parametrize("width", [1024, 5120], ids=["llama-3-8b", "opt-13b"])
def test_k_and_v_move_sixteen_bytes_at_a_time(sm: int, width: int) -> None:
    accesses = Counter(ACCESS.findall(compiled(sm, width).asm["ptx"]))
    wide = {name: count for name, count in accesses.items() if ".v4.b32" in name or ".v2.b64" in name}
    # 128 threads move a tile of 8 KiB in four accesses each, of K and of V.
    assert sum(count for name, count in wide.items() if name.startswith("st")) == 8
    assert sum(count for name, count in wide.items() if name.startswith("ld")) >= 8
    assert not [name for name in accesses if name.startswith("st") and name not in wide]


@needs_triton
def test_a_tile_is_eight_kib_or_sixty_four_tokens() -> None:
    from kernels.triton_kv import tile_of

    assert tile_of(1024, 2) == (4, 1024)
    assert tile_of(5120, 2) == (1, 4096)
    assert tile_of(16, 4) == (64, 16)


def test_a_cpu_writes_by_index_put_and_says_why() -> None:
    writer = usable_writer(open_device("cpu"))
    assert (writer.name, writer.write) == ("index_put", index_put)
    assert writer.refusal == "kernels need a CUDA device"


def test_index_put_writes_both() -> None:
    caches = torch.zeros(3, 2, 1, 4), torch.zeros(3, 2, 1, 4)
    new = torch.ones(1, 1, 4), torch.full((1, 1, 4), 2.0)
    index_put(caches, (torch.tensor([2]), torch.tensor([1])), new)
    assert [cache.sum().item() for cache in caches] == [4.0, 8.0]
    assert [cache[2, 1].sum().item() for cache in caches] == [4.0, 8.0]
