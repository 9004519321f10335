"""What lies between the matrix products: norms, rotation, gating; eager, or fused by `torch.compile`.

Eager, each is two to six kernels that read and write all tokens; compiled, it is one. Nothing is compiled at import.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch.nn import functional

from kernels.device import Device
from kernels.shapes import ModelShape

# One entry a model, type and optional argument in one process; the default of 8 would send the ninth back to eager.
RECOMPILE_LIMIT = 64
# No Triton, no C compiler, no Python headers, a full disk. Dynamo's and Inductor's own exceptions are RuntimeErrors.
COMPILE_ERRORS = (RuntimeError, ImportError, OSError, subprocess.SubprocessError)


def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    """RMS norm, or layer norm where there is a bias (OPT has one in each, Llama has none)."""
    if bias is None:
        return functional.rms_norm(x, weight.shape, weight, eps)
    return functional.layer_norm(x, weight.shape, weight, bias, eps)


def add_norm(
    x: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    """Add `delta` to the residual stream `x`, in place, and return its norm."""
    return norm(x.add_(delta), weight, bias, eps)


def rotate(
    qk: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, scale: torch.Tensor | None, eps: float
) -> torch.Tensor:
    """Turn the heads of q and k by their position, the two halves of a head as the two axes (GPT-NeoX, Llama in HF).

    Parameters
    ----------
    qk : torch.Tensor
        (tokens, heads + kv_heads, head_dim).
    cos, sin : torch.Tensor
        (tokens, 1, head_dim / 2), of `rotary_tables`.
    scale : torch.Tensor or None
        (heads + kv_heads, head_dim): RMS norm over each head first, then this factor (Qwen3).
    """
    if scale is not None:
        qk = functional.rms_norm(qk, qk.shape[-1:], None, eps) * scale
    first, second = qk.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def gate(gate_up: torch.Tensor) -> torch.Tensor:
    """SwiGLU: SiLU of the first half of (tokens, 2 ffn) times the second."""
    gates, up = gate_up.chunk(2, -1)
    return functional.silu(gates) * up


def rotary_tables(
    positions: torch.Tensor, head_dim: int, theta: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of each position's angles, (tokens, 1, head_dim / 2).

    Angles are float32 whatever `dtype` is, as in vLLM and transformers: a model was trained with these roundings.
    Source: Su et al., 2021, equation 15.
    """
    rates = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = positions.float()[:, None, None] * rates
    return angles.cos().to(dtype), angles.sin().to(dtype)


@dataclass(frozen=True)
class Pointwise:
    """The functions a prefill calls.

    Attributes
    ----------
    add_norm, rotate, gate : callable
        The functions of this module, or their compiled forms.
    compiled : bool
        Whether they are compiled.
    refusal : str or None
        Why they are not, where compiling was asked for and failed.
    compile_s : float
        Seconds that compiling, or finding it done, took for this model and number of tokens.
    """

    add_norm: Callable[..., torch.Tensor] = add_norm
    rotate: Callable[..., torch.Tensor] = rotate
    gate: Callable[..., torch.Tensor] = gate
    compiled: bool = False
    refusal: str | None = None
    compile_s: float = 0.0


def compiled_pointwise(shape: ModelShape, dtype: str, device: Device, tokens: int) -> Pointwise:
    """Compiled functions, already called once for this model and this many tokens, or eager ones with the reason.

    Calling them here, on scratch memory, puts every compilation before the first round that is timed.
    """
    compiled, start = _compiled(), time.perf_counter()
    with device.on_stream(), torch.inference_mode(), torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT):
        try:
            _call_each(compiled, shape, getattr(torch, dtype), device.torch_device, tokens)
            device.wait()
        except torch.OutOfMemoryError:
            raise
        except COMPILE_ERRORS as error:
            return Pointwise(refusal=f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
    return replace(compiled, compile_s=time.perf_counter() - start)


@cache
def _compiled() -> Pointwise:
    """Wrap each function once a process.

    Only the number of tokens is dynamic (marked below): with `dynamic=True` the hidden size would be unknown too, and
    a norm's reduction could not be unrolled. `fullgraph` turns a silent return to eager into an error.
    """
    wrap: Any = torch.compile(fullgraph=True, dynamic=False)
    return replace(Pointwise(compiled=True), add_norm=wrap(add_norm), rotate=wrap(rotate), gate=wrap(gate))


def compilations() -> int:
    """How often torch.compile has compiled anything in this process."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"]) if "torch._dynamo.utils" in sys.modules else 0


def _call_each(call: Pointwise, shape: ModelShape, dtype: torch.dtype, device: torch.device, tokens: int) -> None:
    """Call what this shape uses, with arguments of the sizes, strides and kinds that a prefill passes."""

    def scratch(*size: int) -> torch.Tensor:
        return torch.zeros(tokens, *size, dtype=dtype, device=device)

    def any_tokens(x: torch.Tensor) -> torch.Tensor:
        if tokens > 1:  # a size of 1 is always compiled for itself
            torch._dynamo.mark_dynamic(x, 0)
        return x

    eps, qk_heads = shape.norm_eps, shape.heads + shape.kv_heads
    with torch.inference_mode(False):  # weights are ordinary tensors: another kind would be another compilation
        weight = torch.ones(shape.hidden, dtype=dtype, device=device)
        bias = torch.ones_like(weight) if shape.norm == "layer" else None
        scale = torch.ones(qk_heads, shape.head_dim, dtype=dtype, device=device) if shape.qk_norm else None
    call.add_norm(any_tokens(scratch(shape.hidden)), any_tokens(scratch(shape.hidden)), weight, bias, eps)
    if shape.positions == "rotary":
        qkv = scratch(qk_heads + shape.kv_heads, shape.head_dim)
        cos, sin = (any_tokens(scratch(1, shape.head_dim // 2)) for _ in range(2))
        call.rotate(any_tokens(qkv[:, :qk_heads]), cos, sin, scale, eps)
    if shape.mlp == "gated":
        call.gate(any_tokens(scratch(2 * shape.ffn)))
