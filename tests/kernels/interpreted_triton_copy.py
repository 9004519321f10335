"""The copy kernel in Triton's interpreter, on this machine's own memory. `test_triton_copy.py` runs it.

TRITON_INTERPRET must be set before Triton is imported, so these tests have a process of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.device import open_device
from kernels.pieces import Descriptors
from kernels.triton_copy import launches

DEVICE = open_device("cpu")


def aligned(count: int) -> np.ndarray:
    """`count` bytes from an address that is a multiple of 64."""
    memory = np.zeros(count + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + count]


def check(sizes: np.ndarray, word: int, programs: int, seed: int) -> Any:
    """Copy stretches of `sizes` that lie apart and in another order on each side; compare every byte of both sides."""
    rng = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        order, gaps = rng.permutation(len(sizes)), rng.integers(0, 3, len(sizes)) * word
        ends = np.cumsum((sizes + gaps)[order])
        starts = np.empty(len(sizes), dtype=np.int64)
        starts[order] = ends - sizes[order]
        sides.append((starts, aligned(int(ends[-1]) + 16)))
    (src_at, src), (dst_at, dst) = sides
    src[:] = rng.integers(0, 256, len(src), dtype=np.uint8)
    expected, before = dst.copy(), src.copy()
    for start, stop, size in zip(src_at, dst_at, sizes, strict=True):
        expected[stop : stop + size] = src[start : start + size]
    copies = Descriptors(
        (src_at + src.ctypes.data).astype(np.uint64),
        (dst_at + dst.ctypes.data).astype(np.uint64),
        sizes.astype(np.uint64),
    )
    (launch,) = launches([copies], DEVICE, programs)
    assert not dst.any(), "preparing moved bytes"
    launch()
    np.testing.assert_array_equal(dst, expected)
    np.testing.assert_array_equal(src, before)
    return launch


@given(
    word=st.sampled_from([1, 2, 4, 8, 16]),
    words=st.lists(st.integers(1, 700), min_size=1, max_size=12),
    programs=st.integers(1, 5),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=25, deadline=None)
def test_random_plans(word: int, words: list[int], programs: int, seed: int) -> None:
    launch = check(np.array(words) * word, word, programs, seed)
    assert launch.word >= (word if word != 2 else 1)


@pytest.mark.parametrize("size", [1, 7, 15, 16, 17, 255, 256, 16 << 10, (16 << 10) + 16, 300_007])
@pytest.mark.parametrize("programs", [1, 16])
def test_one_descriptor_of_any_size(size: int, programs: int) -> None:
    """Also spread over all programs, where it has pieces enough."""
    launch = check(np.array([size]), 1, programs, 0)
    assert launch.programs == min(programs, launch.table.shape[1])


@pytest.mark.parametrize(("word", "fragment"), [(1, 33), (16, 64)])
def test_ten_thousand_descriptors(word: int, fragment: int) -> None:
    assert check(np.full(10_000, fragment), word, 16, 1).word == word


def test_parts_share_one_word_and_one_upload() -> None:
    memory = aligned(4096)
    memory[:] = np.arange(4096) % 251
    base = memory.ctypes.data

    def part(src: int, dst: int, size: int) -> Descriptors:
        return Descriptors(*(np.array([value], dtype=np.uint64) for value in (base + src, base + dst, size)))

    first, second = launches([part(0, 1024, 512), part(8, 2048, 512)], DEVICE, 16)
    assert (first.word, second.word) == (8, 8)
    assert first.table.untyped_storage().data_ptr() == second.table.untyped_storage().data_ptr()
    expected = memory.copy()
    second()
    expected[2048:2560] = expected[8:520]
    np.testing.assert_array_equal(memory, expected)
    first()
    expected[1024:1536] = expected[0:512]
    np.testing.assert_array_equal(memory, expected)
