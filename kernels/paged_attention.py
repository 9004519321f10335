"""Triton kernels of a decode step's attention: one query a sequence reads K and V where they lie, in the pool's blocks.

The context is split over programs, or a step of few sequences would leave most multiprocessors idle (flash-decoding,
Dao et al., 2023); a second kernel joins the parts. Import this module only where a kernel is about to run.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from kernels.kv_writer import KV

__all__ = ["DTYPES", "TILE", "WARPS", "PagedAttention", "attend_part", "join_parts", "part_options"]

DTYPES = ("float32", "bfloat16", "float16")
TILE = 64  # tokens a program looks at once: 16 KiB of K and as much of V, for 128 elements of 16 bits a head
WARPS = 4
SMALLEST_DOT = 16  # rows and inner size that tl.dot needs at least
MAX_SPLITS = 64
LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["table_row"])  # type: ignore[untyped-decorator]
def attend_part(
    q: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    table: tl.tensor,
    contexts: tl.tensor,
    part: tl.tensor,
    weight: tl.tensor,
    q_row: tl.tensor,
    block_stride: tl.tensor,
    table_row: tl.tensor,
    scale: tl.tensor,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    block_size: tl.constexpr,
    splits: tl.constexpr,
    tile: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
) -> None:
    """One sequence, one KV head with its `group` query heads, one part of the context; the grid is these three.

    Parameters
    ----------
    q : pointer
        (batch, kv_heads x group, head_dim), sequences `q_row` elements apart.
    k_cache, v_cache : pointer
        Block 0; blocks lie `block_stride` elements apart, a block is (block_size, kv_heads, head_dim).
    table : pointer to int64
        (batch, table_row): blocks of each sequence.
    contexts : pointer to int32
        Tokens each query sees.
    part : pointer to float32
        (batch, kv_heads x group, splits, head_dim): the part's values, weighted by its own softmax, not yet divided.
    weight : pointer to float32
        (2, batch, kv_heads x group, splits): largest score in powers of 2, and the sum of weights beside it.
    rows, columns : int
        `group` and `head_dim`, padded to powers of 2 that tl.dot takes.
    """
    sequence, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    row, column = tl.arange(0, rows), tl.arange(0, columns)
    head = kv_head * group + row
    is_head, is_column = row < group, column < head_dim
    own = sequence * q_row + head[:, None] * head_dim + column[None, :]
    query = tl.load(q + own, mask=is_head[:, None] & is_column[None, :], other=0.0)

    context = tl.load(contexts + sequence)
    length = tl.cdiv(tl.cdiv(context, splits), tile) * tile
    first = split * length
    last = tl.minimum(first + length, context)
    largest = tl.full((rows,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((rows,), dtype=tl.float32)
    values = tl.zeros((rows, columns), dtype=tl.float32)
    for start in range(first, last, tile):
        token = start + tl.arange(0, tile)
        there = token < last
        block = tl.load(table + sequence * table_row + token // block_size, mask=there, other=0)
        at = block * block_stride + ((token % block_size) * kv_heads + kv_head) * head_dim
        inside = there[:, None] & is_column[None, :]
        keys = tl.load(k_cache + at[:, None] + column[None, :], mask=inside, other=0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * (scale * LOG2_E)
        scores = tl.where(there[None, :], scores, float("-inf"))
        above = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - above[:, None])
        faded = tl.exp2(largest - above)
        total = total * faded + tl.sum(weights, 1)
        new = tl.load(v_cache + at[:, None] + column[None, :], mask=inside, other=0.0)
        values = values * faded[:, None] + tl.dot(weights.to(new.dtype), new, input_precision="ieee")
        largest = above

    heads: tl.constexpr = kv_heads * group
    place = (sequence * heads + head) * splits + split
    tl.store(weight + place, largest, mask=is_head)
    tl.store(weight + tl.num_programs(0).to(tl.int64) * heads * splits + place, total, mask=is_head)
    there_too = is_head[:, None] & is_column[None, :]
    tl.store(part + place[:, None] * head_dim + column[None, :], values, mask=there_too)


@triton.jit  # type: ignore[untyped-decorator]
def join_parts(
    part: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    head_dim: tl.constexpr,
    splits: tl.constexpr,
    padded: tl.constexpr,
    columns: tl.constexpr,
) -> None:
    """One head of one sequence: the parts of its context, each at its weight. The grid is (batch x heads).

    Parameters
    ----------
    out : pointer
        (batch x heads, head_dim) of the queries' type; the others as in `attend_part`.
    """
    head = tl.program_id(0).to(tl.int64)
    split, column = tl.arange(0, padded), tl.arange(0, columns)
    is_split, is_column = split < splits, column < head_dim
    largest = tl.load(weight + head * splits + split, mask=is_split, other=float("-inf"))
    sums = tl.num_programs(0).to(tl.int64) * splits
    total = tl.load(weight + sums + head * splits + split, mask=is_split, other=0.0)
    share = tl.exp2(largest - tl.max(largest, 0))  # 0 for a part of no tokens
    inside = is_split[:, None] & is_column[None, :]
    at = (head * splits + split)[:, None] * head_dim + column[None, :]
    values = tl.load(part + at, mask=inside, other=0.0)
    joined = tl.sum(values * share[:, None], 0) / tl.sum(total * share, 0)
    tl.store(out + head * head_dim + column, joined.to(out.dtype.element_ty), mask=is_column)


def part_options(heads: int, kv_heads: int, head_dim: int, block_size: int, splits: int) -> dict[str, int]:
    """The compile-time arguments of `attend_part`."""
    group = heads // kv_heads
    return {
        "kv_heads": kv_heads,
        "group": group,
        "head_dim": head_dim,
        "block_size": block_size,
        "splits": splits,
        "tile": TILE,
        "rows": max(SMALLEST_DOT, triton.next_power_of_2(group)),
        "columns": max(SMALLEST_DOT, triton.next_power_of_2(head_dim)),
    }


@dataclass(frozen=True, eq=False)
class PagedAttention:
    """Both kernels, bound to one batch of sequences; calling it enqueues them on torch's current stream.

    Attributes
    ----------
    table : torch.Tensor
        int64, (batch, most blocks of a sequence).
    contexts : torch.Tensor
        int32, (batch,): tokens that each query sees, its own included.
    part, weight : torch.Tensor
        float32 scratch, (batch, heads, splits, head_dim) and (2, batch, heads, splits), of one layer at a time.
    """

    table: torch.Tensor
    contexts: torch.Tensor
    part: torch.Tensor
    weight: torch.Tensor

    @classmethod
    def of(
        cls, table: torch.Tensor, contexts: torch.Tensor, heads: int, kv_heads: int, head_dim: int, programs: int
    ) -> PagedAttention:
        """For sequences with these blocks and contexts; the context is split until there are `programs` programs."""
        batch = len(contexts)
        tiles = -(-int(contexts.max()) // TILE)
        splits = max(1, min(tiles, MAX_SPLITS, -(-programs // (batch * kv_heads))))
        part = torch.empty(batch, heads, splits, head_dim, dtype=torch.float32, device=table.device)
        weight = torch.empty(2, batch, heads, splits, dtype=torch.float32, device=table.device)
        return cls(table, contexts, part, weight)

    def __call__(self, q: torch.Tensor, kv: KV) -> torch.Tensor:
        """Attention of (batch, heads, head_dim) to one layer of the pool; (batch, heads x head_dim)."""
        batch, heads, splits, head_dim = self.part.shape
        _, block_size, kv_heads, _ = kv[0].shape
        options = part_options(heads, kv_heads, head_dim, block_size, splits)
        attend_part[(batch, kv_heads, splits)](
            q,
            *kv,
            self.table,
            self.contexts,
            self.part,
            self.weight,
            q.stride(0),
            kv[0].stride(0),
            self.table.shape[1],
            head_dim**-0.5,
            **options,
            num_warps=WARPS,
            enable_fp_fusion=True,
        )
        out = torch.empty(batch, heads * head_dim, dtype=q.dtype, device=q.device)
        padded = triton.next_power_of_2(splits)
        join_parts[(batch * heads,)](
            self.part,
            self.weight,
            out,
            head_dim=head_dim,
            splits=splits,
            padded=padded,
            columns=options["columns"],
            num_warps=WARPS,
            enable_fp_fusion=True,
        )
        return out
