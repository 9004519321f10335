"""The Triton kernel of the gather and direct methods: it moves pieces of bytes between raw addresses.

Import this module only where a kernel is about to run: Triton may be missing (`kernels.triton_probe` says so).
Addresses are whatever the GPU reaches: its own memory, or pinned host memory through unified addressing. Bytes are
moved as integers, never as bfloat16: an interpreter or an old chip would change them (triton#4972, pytorch#118581).
Nothing is autotuned: `@triton.autotune` asks for a driver when a module is imported (triton#5570).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from triton.errors import TritonError  # type: ignore[import-untyped]

from kernels import pieces as cutting
from kernels.device import Device
from kernels.pieces import Descriptors

__all__ = ["TRITON_VERSION", "WARPS", "Launch", "TritonError", "copy_pieces", "launches", "probe"]

TRITON_VERSION: str = triton.__version__
WARPS = 8  # 256 threads: a group of 16 KiB is four accesses of 16 bytes a thread, all of them in flight


@triton.jit(do_not_specialize=["pieces"], do_not_specialize_on_alignment=["table"])  # type: ignore[untyped-decorator]
def copy_pieces(
    table: tl.tensor, pieces: tl.tensor, word: tl.constexpr, piece_bytes: tl.constexpr, group_bytes: tl.constexpr
) -> None:
    """Copy `pieces` pieces of at most piece_bytes bytes, a group of group_bytes // piece_bytes of them at a time.

    Programs are persistent and share the groups out: a few carry many pieces, or the parts of one large descriptor.

    Parameters
    ----------
    table : pointer to int64
        Shape (3, pieces): source addresses, destination addresses, bytes.
    pieces : int32
        Columns of the table.
    word : int
        16, 8, 4 or 1 bytes, which divides every address and size. 16 is two int64 a thread in one access; Triton
        emits it only where pointers are said to be multiples of 16 bytes after they got their second dimension.
    """
    element: tl.constexpr = tl.int64 if word >= 8 else (tl.int32 if word == 4 else tl.int8)
    size: tl.constexpr = 8 if word >= 8 else word
    rows: tl.constexpr = group_bytes // piece_bytes
    columns = tl.arange(0, piece_bytes // size)[None, :]
    for group in range(tl.program_id(0), tl.cdiv(pieces, rows), tl.num_programs(0)):
        piece = group * rows + tl.arange(0, rows)
        there = piece < pieces
        src = tl.load(table + piece, mask=there, other=0).to(tl.pointer_type(element))[:, None]
        dst = tl.load(table + pieces + piece, mask=there, other=0).to(tl.pointer_type(element))[:, None]
        length = tl.load(table + 2 * pieces + piece, mask=there, other=0).to(tl.int32)[:, None] // size
        inside = columns < tl.multiple_of(length, [word // size, word // size])
        # .cg keeps bytes that are touched once out of the L1 cache, as SGLang's kernel does.
        values = tl.load(tl.multiple_of(src, [word, word]) + columns, mask=inside, cache_modifier=".cg")
        tl.store(tl.multiple_of(dst, [word, word]) + columns, values, mask=inside, cache_modifier=".cg")


@dataclass(frozen=True, eq=False)
class Launch:
    """One launch of the kernel; calling it enqueues it on torch's current stream.

    Attributes
    ----------
    table : torch.Tensor
        int64 on the device, shape (3, pieces); held until the launch is forgotten.
    programs : int
        Programs that share the pieces.
    word, piece_bytes : int
        Bytes a thread moves at once, and bytes of a full piece.
    """

    table: torch.Tensor
    programs: int
    word: int
    piece_bytes: int

    def __call__(self) -> None:
        """Enqueue."""
        copy_pieces[(self.programs,)](
            self.table,
            self.table.shape[1],
            word=self.word,
            piece_bytes=self.piece_bytes,
            group_bytes=cutting.group_bytes(self.word),
            num_warps=WARPS,
            enable_fp_fusion=False,  # unset, Triton 3.9 warns about its default; no float is touched here
        )


def launches(parts: Sequence[Descriptors], device: Device, programs: int) -> list[Launch]:
    """One launch for each of `parts`, all of one word and piece size; compiled, and their tables uploaded at once.

    Parameters
    ----------
    parts : sequence of Descriptors
        Copies that may run in any order, each part with at least one byte.
    programs : int
        Programs a launch has at most; fewer where it has fewer groups.
    """
    whole = Descriptors(*(np.concatenate([getattr(part, side) for part in parts]) for side in ("src", "dst", "sizes")))
    word = cutting.word_bytes(whole)
    piece = cutting.piece_bytes(whole, word)
    rows = cutting.group_bytes(word) // piece
    cut = [cutting.split(part, piece) for part in parts]
    tables = np.concatenate([np.stack((part.src, part.dst, part.sizes)).reshape(-1) for part in cut])
    uploaded = torch.from_numpy(tables.view(np.int64)).to(device.torch_device)
    ends = np.cumsum([3 * len(part) for part in cut])
    views = [uploaded[end - 3 * len(part) : end].view(3, -1) for part, end in zip(cut, ends, strict=True)]
    Launch(uploaded[:0].view(3, 0), 1, word, piece)()  # compiles and loads
    return [Launch(view, min(programs, -(-view.shape[1] // rows)), word, piece) for view in views]


def probe(device: Device) -> None:
    """Compile, load and launch the kernel on no pieces; whatever stands in the way is raised."""
    nothing = torch.empty((3, 0), dtype=torch.int64, device=device.torch_device)
    Launch(nothing, programs=1, word=16, piece_bytes=cutting.GROUP_BYTES)()
    device.wait()
