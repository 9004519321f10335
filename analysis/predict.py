"""Swap and recompute times of a model on a machine nobody measured, from its data sheet and derived efficiencies.

A copy costs descriptors x per-copy cost + bytes / (nominal rate x share); a prefill takes the longer of its FLOPs at a
share of the peak and its weights at a share of the memory bandwidth (roofline: Williams et al., CACM 2009). Fitted
constants of a machine replace either. Origin: always "modelled".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analysis.cost_model import CopyFit, PrefillFit
from analysis.efficiencies import Efficiencies
from kernels.shapes import Layout, ModelShape
from kernels.specs import GpuSpec

ORIGIN = "modelled"
GB = 1e9


@dataclass(frozen=True)
class SwapPrediction:
    """One direction of a swap.

    Attributes
    ----------
    seconds : float
    descriptors, nbytes : int
        Of the copy plan, neighbours not merged.
    assumption : str
        Every figure it rests on.
    """

    seconds: float
    descriptors: int
    nbytes: int
    assumption: str
    origin: str = ORIGIN

    @property
    def round_trip_s(self) -> float:
        """Out and in, both directions equally fast."""
        return 2 * self.seconds


@dataclass(frozen=True)
class RecomputePrediction:
    """A prefill. `bound` is "compute", "memory" or "fit"; `assumption` names every figure it rests on."""

    seconds: float
    bound: str
    assumption: str
    origin: str = ORIGIN


def predict_swap(
    shape: ModelShape,
    tokens: int,
    using: GpuSpec | CopyFit,
    efficiencies: Efficiencies | None = None,
    *,
    block_size: int | None = None,
    layout: Layout = "layer_split",
    dtype: str = "bfloat16",
) -> SwapPrediction:
    """Seconds to move `tokens` tokens of KV cache one way by a loop of memcpy calls.

    Parameters
    ----------
    using : GpuSpec or CopyFit
        A data sheet, or constants fitted to a machine.
    efficiencies : Efficiencies, optional
        Needed with a data sheet: `analysis.efficiencies.derive(load_published())`.
    block_size : int, optional
        Tokens a block; None for one contiguous copy, the ceiling.

    Raises
    ------
    ValueError
        If a data sheet comes without efficiencies, or a length or block size is below 1.
    """
    if tokens < 1:
        raise ValueError(f"{tokens} tokens; it must be 1 or more")
    descriptors, nbytes = 1, tokens * shape.kv_bytes_per_token(dtype)
    if block_size is not None:
        blocks = -(-tokens // block_size)
        descriptors = blocks * shape.fragments_per_block(layout)
        nbytes = descriptors * shape.fragment_bytes(layout, block_size, dtype)
    plan = f"{descriptors:,} copies of {nbytes // descriptors:,} bytes"
    if isinstance(using, GpuSpec):
        return _priced(descriptors, nbytes, using, _required(efficiencies), plan)
    fitted = (
        f"{plan}; fitted to {using.origin} rows: {using.fixed_s * 1e6:.3g} us + {using.per_copy_s * 1e6:.3g} us a copy "
        f"+ bytes at {using.bytes_s / GB:.3g} GB/s"
    )
    return SwapPrediction(using.seconds(descriptors, nbytes), descriptors, nbytes, fitted)


def predict_copies(descriptors: int, nbytes: int, gpu: GpuSpec, efficiencies: Efficiencies) -> SwapPrediction:
    """Seconds of any plan by a loop of memcpy calls, from a data sheet."""
    return _priced(descriptors, nbytes, gpu, efficiencies, f"{descriptors:,} copies, {nbytes:,} bytes")


def _priced(descriptors: int, nbytes: int, gpu: GpuSpec, known: Efficiencies, plan: str) -> SwapPrediction:
    rate = gpu.link_bytes_s * known.link_share.value
    assumption = (
        f"{plan}; {gpu.link} at {gpu.link_bytes_s / GB:g} GB/s x {known.link_share.text()}; "
        f"{known.per_copy_s.text(1e6, ' us')} a copy"
    )
    return SwapPrediction(descriptors * known.per_copy_s.value + nbytes / rate, descriptors, nbytes, assumption)


def predict_recompute(
    shape: ModelShape,
    tokens: int,
    using: GpuSpec | PrefillFit,
    efficiencies: Efficiencies | None = None,
    *,
    dtype: str = "bfloat16",
    batch: int = 1,
) -> RecomputePrediction:
    """Seconds of a prefill of `batch` sequences of `tokens` tokens, LM head on the last of each.

    Parameters
    ----------
    using : GpuSpec or PrefillFit
        A data sheet, or a fit to a machine (which knows one sequence only).

    Raises
    ------
    ValueError
        If a data sheet comes without efficiencies, a fit with a batch, or a length or batch is below 1.
    """
    if min(tokens, batch) < 1:
        raise ValueError(f"{batch} sequences of {tokens} tokens; both must be 1 or more")
    if not isinstance(using, GpuSpec):
        if batch > 1:
            raise ValueError(f"a fit over the length of one sequence says nothing of a batch of {batch}")
        fitted = (
            f"fitted to {using.origin} rows: {using.fixed_s * 1e3:.3g} ms + {using.linear_s * 1e6:.3g} us a token "
            f"+ {using.quadratic_s * 1e12:.3g} ps a token squared, at least {using.floor_s * 1e3:.3g} ms"
        )
        return RecomputePrediction(using.seconds(tokens), "fit", fitted)
    known = _required(efficiencies)
    computing = batch * shape.prefill_flops(tokens) / (using.bf16_flops * known.flops_share.value)
    reading = shape.weight_bytes(dtype) / (using.hbm_bytes_s * known.hbm_share.value)
    assumption = (
        f"{using.bf16_flops / 1e12:g} TFLOP/s x {known.flops_share.text()}; "
        f"weights at {using.hbm_bytes_s / GB:g} GB/s x {known.hbm_share.text()}"
    )
    bound = "compute" if computing >= reading else "memory"
    return RecomputePrediction(max(computing, reading), bound, assumption)


def _required(efficiencies: Efficiencies | None) -> Efficiencies:
    if efficiencies is None:
        raise ValueError("a data sheet needs efficiencies: pass analysis.efficiencies.derive(load_published())")
    return efficiencies


def with_link(gpu: GpuSpec, link: str, bytes_s: float) -> GpuSpec:
    """The same GPU behind another link, e.g. an A100 at PCIe 3.0 x16 (15.75e9 bytes/s nominal)."""
    return replace(gpu, link=link, link_bytes_s=bytes_s)
