"""The Triton kernel that writes a layer's K and V into the pool's blocks, both in one launch.

Import this module only where a kernel is about to run: Triton may be missing (`kernels.triton_probe` says so).
Elements are moved as integers of their size: an interpreter or an old chip would change floats (triton#4972).
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from kernels.kv_writer import KV, Slot

__all__ = ["TILE_BYTES", "WARPS", "tile_of", "warm_up", "write_kv", "write_kv_kernel"]

WARPS = 4  # 128 threads: a tile of 8 KiB is four accesses of 16 bytes a thread, for K and again for V
TILE_BYTES = 8 << 10
INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit(do_not_specialize=["tokens"])  # type: ignore[untyped-decorator]
def write_kv_kernel(
    k: tl.tensor,
    v: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    blocks: tl.tensor,
    offsets: tl.tensor,
    k_row: tl.tensor,
    v_row: tl.tensor,
    block_stride: tl.tensor,
    tokens: tl.tensor,
    width: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
) -> None:
    """Write `rows` tokens' `columns` elements a program; the grid is (groups of tokens, tiles of the width).

    Parameters
    ----------
    k, v : pointer to int
        Element 0 of the first token's K and V; rows lie `k_row` and `v_row` elements apart.
    k_cache, v_cache : pointer to int
        Element 0 of block 0; blocks lie `block_stride` elements apart, the tokens of a block `width`.
    blocks, offsets : pointer to int64
        Each token's block and place in it.
    width : int
        Elements of a token's K: kv_heads x head_dim.
    """
    # int64 throughout: a pool, and the queries, keys and values of a long prefill, have more than 2 ** 31 elements.
    token = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)[None, :]
    there = token < tokens
    block = tl.load(blocks + token, mask=there, other=0)
    offset = tl.load(offsets + token, mask=there, other=0)
    slot = (block * block_stride + offset * width)[:, None] + column
    inside = there[:, None] & (column < width)
    tl.store(k_cache + slot, tl.load(k + (token * k_row)[:, None] + column, mask=inside), mask=inside)
    tl.store(v_cache + slot, tl.load(v + (token * v_row)[:, None] + column, mask=inside), mask=inside)


def tile_of(width: int, element_bytes: int) -> tuple[int, int]:
    """Tokens and elements a token that one program writes: TILE_BYTES together, never more tokens than 64."""
    columns = min(triton.next_power_of_2(width), TILE_BYTES // element_bytes)
    return min(64, TILE_BYTES // (columns * element_bytes)), columns


def write_kv(caches: KV, slot: Slot, new: KV) -> None:
    """Enqueue the write on torch's current stream; arguments as in `kernels.kv_writer.KvWriter`."""
    _launch(caches, slot, new, len(new[0]))


def warm_up(caches: KV, heads: int) -> None:
    """Compile and load, in a launch that writes no token.

    Triton compiles once more where a pointer or a stride is no multiple of 16: the tensors are laid out as a prefill's.
    """
    _, _, kv_heads, head_dim = caches[0].shape
    for after in (0, kv_heads):  # K behind the rotation is packed with the queries; without, with the values too
        packed = torch.empty(1, heads + kv_heads + after, head_dim, dtype=caches[0].dtype, device=caches[0].device)
        whole = torch.empty(1, heads + 2 * kv_heads, head_dim, dtype=packed.dtype, device=packed.device)
        nowhere = torch.zeros(1, dtype=torch.int64, device=packed.device)
        new = packed[:, heads : heads + kv_heads], whole[:, heads + kv_heads :]
        _launch(caches, (nowhere, nowhere), new, 0)


def _launch(caches: KV, slot: Slot, new: KV, tokens: int) -> None:
    k, v = (values.view(INTEGER[values.element_size()]) for values in new)
    k_cache, v_cache = (cache.view(k.dtype) for cache in caches)
    width = k.shape[1] * k.shape[2]
    rows, columns = tile_of(width, k.element_size())
    write_kv_kernel[(max(1, triton.cdiv(tokens, rows)), triton.cdiv(width, columns))](
        k,
        v,
        k_cache,
        v_cache,
        *slot,
        k.stride(0),
        v.stride(0),
        k_cache.stride(0),
        tokens,
        width=width,
        rows=rows,
        columns=columns,
        num_warps=WARPS,
        enable_fp_fusion=False,  # unset, Triton 3.9 warns about its default; no float is touched here
    )
