"""Causal attention through torch's fused kernels, by a backend that is pinned and therefore known.

Left alone, `scaled_dot_product_attention` picks a kernel itself and may fall back to the slow one without a word.
A name here is an `SDPBackend`'s; with "+REPEATED_KV" behind it the backend knows no grouped heads, and K and V are
repeated for each query head first.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kernels.device import Device
from kernels.sequences import Run
from kernels.shapes import ModelShape

FUSED: dict[str, tuple[str, ...]] = {
    "cuda": ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"),
    "cpu": ("FLASH_ATTENTION",),
}
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
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, runs: Sequence[Run], repeat_kv: bool = False
) -> torch.Tensor:
    """Causal attention of every sequence to itself.

    Parameters
    ----------
    q : torch.Tensor
        (tokens, heads, head_dim).
    k, v : torch.Tensor
        (tokens, kv_heads, head_dim).
    runs : sequence of Run
        How the tokens fall into sequences; one call a run.
    repeat_kv : bool
        Repeat K and V for each query head, for a backend without grouped heads.

    Returns
    -------
    torch.Tensor
        (tokens, heads x head_dim).
    """
    parts = [_attend_run(q, k, v, run, repeat_kv) for run in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend_run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, run: Run, repeat_kv: bool) -> torch.Tensor:
    grouped = q.shape[1] != k.shape[1]
    if repeat_kv and grouped:
        times = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    tokens = run.batch * run.length
    q, k, v = (x[run.start :][:tokens].view(run.batch, run.length, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
    # Softmax scale is head_dim ** -0.5, as in every model of shapes.py.
    seen = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped and not repeat_kv)
    return seen.transpose(1, 2).reshape(tokens, -1)


def usable_attention(device: Device, shape: ModelShape, dtype: str, tokens: int) -> tuple[str, ...]:
    """Backends that run this model's attention here, tried by running each on one sequence of `tokens` tokens.

    A backend that refuses grouped heads is tried once more with K and V repeated. "MATH" (unfused, memory quadratic
    in `tokens`) is the answer only where nothing fused runs. Which is the fastest is for the bench to time.
    """
    suffixes = ("", REPEATED_KV) if shape.heads != shape.kv_heads else ("",)
    usable = []
    for fused in FUSED[device.backend]:
        way = next((fused + suffix for suffix in suffixes if _runs(fused + suffix, device, shape, dtype, tokens)), None)
        usable += [way] if way else []
    return tuple(usable) or ("MATH",)


def _runs(name: str, device: Device, shape: ModelShape, dtype: str, tokens: int) -> bool:
    """Whether the backend runs. torch warns, once for each reason, about a backend it refuses; the answer says it."""
    with warnings.catch_warnings(), device.on_stream(), torch.inference_mode(), pinned(name):
        warnings.simplefilter("ignore")
        q, k, v = (
            torch.zeros(tokens, heads, shape.head_dim, dtype=getattr(torch, dtype), device=device.torch_device)
            for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
        )
        try:
            attend(q, k, v, [Run(0, 1, tokens)], name.endswith(REPEATED_KV))
            device.wait()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # "No available kernel", or the backend's own refusal
            return False
    return True
