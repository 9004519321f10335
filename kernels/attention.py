"""Causal attention through torch's fused kernels, by a backend that is pinned and therefore known.

Left alone, `scaled_dot_product_attention` picks a kernel itself and may fall back to the slow one without a word.
A name here is an `SDPBackend`'s; with "+REPEATED_KV" behind it the backend knows no grouped heads, and K and V are
repeated for each query head first.

Tokens that follow a cached part attend to the pool's blocks, gathered into one tensor for the call.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kernels.device import Device
from kernels.sequences import Run, Sequences, block_table, runs
from kernels.shapes import ModelShape

FUSED: dict[str, tuple[str, ...]] = {
    "cuda": ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"),
    "cpu": ("FLASH_ATTENTION",),
}
# The fused kernel of CUDA that knows a causal mask aligned to the last key, grouped heads or not. torch would call the
# efficient one past the step that repeats grouped heads for it, so that one and the others are given the mask itself.
KNOWS_LOWER_RIGHT = "FLASH_ATTENTION"
REPEATED_KV = "+REPEATED_KV"


def pinned(name: str) -> AbstractContextManager[object]:
    """Context in which only the backend called `name` may run; entered once around a prefill, not once a layer.

    Raises
    ------
    ValueError
        If torch has no such backend.
    """
    backend = SDPBackend.__members__.get(name.removesuffix(REPEATED_KV))
    if backend is None:
        known = ", ".join(SDPBackend.__members__)
        raise ValueError(f"unknown attention {name!r}; known: {known}, each with or without {REPEATED_KV}")
    return sdpa_kernel([backend])


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, alike: Sequence[Run], repeat_kv: bool = False
) -> torch.Tensor:
    """Causal attention of every sequence to itself.

    Parameters
    ----------
    q : torch.Tensor
        (tokens, heads, head_dim).
    k, v : torch.Tensor
        (tokens, kv_heads, head_dim).
    alike : sequence of Run
        How the tokens fall into sequences; one call a run.
    repeat_kv : bool
        Repeat K and V for each query head, for a backend without grouped heads.

    Returns
    -------
    torch.Tensor
        (tokens, heads x head_dim).
    """
    parts = [_attend_run(q, k, v, run, repeat_kv) for run in alike]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def attend_packed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kv: tuple[torch.Tensor, torch.Tensor],
    parts: Sequence[tuple[Run, torch.Tensor | None]],
    attention: str,
) -> torch.Tensor:
    """Attention of every run: to itself where it has no table, through the pool's blocks where it has one.

    Parameters are those of `attend` and `attend_blocks`; `parts` are runs with their tables, of `with_tables`.
    """
    seen = [
        attend(q, k, v, (run,), attention.endswith(REPEATED_KV))
        if table is None
        else attend_blocks(q, kv, run, table, attention)
        for run, table in parts
    ]
    return seen[0] if len(seen) == 1 else torch.cat(seen)


def with_tables(
    sequences: Sequences, block_size: int, device: torch.device
) -> tuple[tuple[Run, torch.Tensor | None], ...]:
    """Runs of `sequences`, each with the blocks of its sequences, on the device, where it has cached tokens."""
    table = block_table(sequences, block_size)
    parts: list[tuple[Run, torch.Tensor | None]] = []
    first = 0
    for run in runs(sequences.lengths, sequences.cached):
        blocks = -(-(run.cached + run.length) // block_size)
        held = torch.from_numpy(table[first : first + run.batch, :blocks]).to(device) if run.cached else None
        parts.append((run, held))
        first += run.batch
    return tuple(parts)


def attend_blocks(
    q: torch.Tensor, kv: tuple[torch.Tensor, torch.Tensor], run: Run, table: torch.Tensor, attention: str
) -> torch.Tensor:
    """Attention of a run's tokens to all that their sequences hold in the pool, themselves included.

    Parameters
    ----------
    q : torch.Tensor
        (tokens, heads, head_dim), all packed tokens.
    kv : tuple of torch.Tensor
        One layer of the pool, (blocks, block_size, kv_heads, head_dim) each; the run's own K and V are in it.
    table : torch.Tensor
        int64, (run.batch, blocks): the blocks of each sequence.
    attention : str
        The name of the backend that is pinned.

    Returns
    -------
    torch.Tensor
        (run.batch x run.length, heads x head_dim).
    """
    context = run.cached + run.length
    k, v = (cache[table].flatten(1, 2)[:, :context] for cache in kv)
    q = _by_sequence(q, run)
    mask = None  # a single token sees everything
    if run.length > 1:
        mask = _lower_right(run.length, context, q.device, attention.removesuffix(REPEATED_KV))
    return _sdpa(q, k, v, attention.endswith(REPEATED_KV), mask=mask)


def _lower_right(length: int, context: int, device: torch.device, backend: str) -> torch.Tensor:
    """The mask of `length` tokens that end a sequence of `context`; no memory where the kernel knows it."""
    if device.type == "cuda" and backend == KNOWS_LOWER_RIGHT:
        from torch.nn.attention.bias import causal_lower_right  # brings the whole of Dynamo with it

        return causal_lower_right(length, context)
    return torch.ones(length, context, dtype=torch.bool, device=device).tril_(context - length)


def _attend_run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, run: Run, repeat_kv: bool) -> torch.Tensor:
    q, k, v = (_by_sequence(x, run) for x in (q, k, v))
    return _sdpa(q, k, v, repeat_kv, causal=True)


def _by_sequence(x: torch.Tensor, run: Run) -> torch.Tensor:
    """The run's part of the packed tokens, (batch, length, heads, head_dim)."""
    return x[run.tokens].view(run.batch, run.length, *x.shape[1:])


def _sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    repeat_kv: bool,
    causal: bool = False,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """(batch, tokens, heads, head_dim) each, queries and keys of different number; (batch x tokens, width) out."""
    grouped = q.shape[2] != k.shape[2]
    if repeat_kv and grouped:
        times = q.shape[2] // k.shape[2]
        k, v = k.repeat_interleave(times, dim=2), v.repeat_interleave(times, dim=2)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    # Softmax scale is head_dim ** -0.5, as in every model of shapes.py.
    seen = scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=grouped and not repeat_kv)
    return seen.transpose(1, 2).reshape(q.shape[0] * q.shape[2], -1)


def usable_attention(device: Device, shape: ModelShape, dtype: str, tokens: int, cached: int = 0) -> tuple[str, ...]:
    """Backends that run this model's attention here, tried by running each on one sequence of `tokens` tokens.

    A backend that refuses grouped heads is tried once more with K and V repeated. "MATH" (unfused, memory quadratic
    in `tokens`) is the answer only where nothing fused runs. Which is the fastest is for the bench to time.
    With `cached` tokens before them the new ones attend to blocks, and a backend must run both with and without.
    """
    suffixes = ("", REPEATED_KV) if shape.heads != shape.kv_heads else ("",)
    usable = []
    for fused in FUSED[device.backend]:
        ways = (fused + suffix for suffix in suffixes)
        way = next((name for name in ways if _runs(name, device, shape, dtype, tokens, cached)), None)
        usable += [way] if way else []
    return tuple(usable) or ("MATH",)


def _runs(name: str, device: Device, shape: ModelShape, dtype: str, tokens: int, cached: int) -> bool:
    """Whether the backend runs. torch warns, once for each reason, about a backend it refuses; the answer says it."""
    with warnings.catch_warnings(), device.on_stream(), torch.inference_mode(), pinned(name):
        warnings.simplefilter("ignore")
        q, k, v = (
            torch.zeros(cached + tokens, heads, shape.head_dim, dtype=getattr(torch, dtype), device=device.torch_device)
            for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
        )
        only = torch.zeros(1, 1, dtype=torch.int64, device=device.torch_device)
        try:
            attend(q, k, v, [Run(0, 1, tokens)], name.endswith(REPEATED_KV))
            if cached:
                attend_blocks(q, (k[None], v[None]), Run(0, 1, tokens, cached), only, name)
            device.wait()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # "No available kernel", or the backend's own refusal
            return False
    return True
