from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import pieces
from kernels.pieces import Descriptors


def descriptors(src: list[int], dst: list[int], sizes: list[int]) -> Descriptors:
    return Descriptors(*(np.array(values, dtype=np.uint64) for values in (src, dst, sizes)))


def pairs(copies: Descriptors) -> list[tuple[int, int]]:
    """Every (source, destination) byte, in order."""
    rows = zip(copies.src.tolist(), copies.dst.tolist(), copies.sizes.tolist(), strict=True)
    return [(src + byte, dst + byte) for src, dst, size in rows for byte in range(size)]


@given(
    rows=st.lists(st.tuples(st.integers(0, 2**48), st.integers(0, 2**63), st.integers(0, 40)), max_size=20),
    limit=st.integers(1, 50),
)
def test_splitting_keeps_every_byte_and_its_order(rows: list[tuple[int, int, int]], limit: int) -> None:
    copies = descriptors(*(list(column) for column in zip(*rows, strict=True))) if rows else descriptors([], [], [])
    cut = pieces.split(copies, limit)
    assert pairs(cut) == pairs(copies)
    assert all(0 < size <= limit for size in cut.sizes.tolist())
    assert {cut.src.dtype, cut.dst.dtype, cut.sizes.dtype} == {np.dtype(np.uint64)}


@pytest.mark.parametrize(
    ("src", "dst", "size", "word"),
    [(64, 32, 48, 16), (64, 40, 48, 8), (64, 32, 40, 8), (68, 32, 48, 4), (64, 32, 6, 1), (64, 33, 48, 1)],
)
def test_the_word_divides_every_address_and_size(src: int, dst: int, size: int, word: int) -> None:
    assert pieces.word_bytes(descriptors([0, src], [0, dst], [16, size])) == word


@pytest.mark.parametrize(
    ("size", "word", "piece"),
    [(1, 1, 256), (257, 1, 512), (2048, 16, 2048), (2049, 16, 4096), (1 << 30, 16, 16384), (1 << 30, 1, 4096)],
)
def test_a_piece_holds_the_largest_descriptor_up_to_a_group(size: int, word: int, piece: int) -> None:
    assert pieces.piece_bytes(descriptors([0, 0], [0, 0], [1, size]), word) == piece
