"""Claims that arithmetic decides: KV bytes, nominal transfer times, ridge points, shares of attention, reads.

Geometry is `kernels.shapes`, data-sheet figures are `results/specs.toml`; nothing here was measured.
"""

from __future__ import annotations

import pandas as pd

from analysis.claim_types import Answer, Claim, Verdict
from analysis.intervals import Interval
from kernels import shapes
from kernels.shapes import ModelShape
from kernels.specs import GpuSpec, all_specs

MODEL = "llama-3-8b"
DTYPE = "bfloat16"
NEAR = 0.05  # "roughly", "comes to": within 5 % of the number claimed
PCIE4_NOMINAL = "PCIe 4.0 x16"
# Elements a token reads and writes in a layer beside weights and KV: 10 hidden, 2 query, 4 KV and 3 MLP widths.
# A rough count for unfused norms, projections and MLP, good to some 20 %.
ACTIVATIONS = (10, 2, 4, 3)


def spec(name: str) -> GpuSpec:
    """The data sheet called `name`; ValueError lists the known ones."""
    found = {spec.name: spec for spec in all_specs()}
    if name not in found:
        raise ValueError(f"no data sheet {name!r}; known: {', '.join(found)}")
    return found[name]


def ridge(gpu: GpuSpec) -> float:
    """FLOP per byte of memory traffic at which a GPU's BF16 peak and its memory bandwidth take equally long."""
    return gpu.bf16_flops / gpu.hbm_bytes_s


def prefill_bytes(shape: ModelShape, tokens: int, dtype: str = DTYPE) -> int:
    """Bytes of memory traffic of a prefill: weights once, K and V written, activations (see `ACTIVATIONS`)."""
    hidden, query, kv, mlp = ACTIVATIONS
    elements = hidden * shape.hidden + query * shape.q_width + kv * shape.kv_width + mlp * shape.ffn
    moved = shape.kv_bytes_per_token(dtype) + shape.layers * elements * shapes.dtype_bytes(dtype)
    return shape.weight_bytes(dtype) + tokens * moved


def intensity(shape: ModelShape, tokens: int, dtype: str = DTYPE) -> float:
    """FLOP per byte of memory traffic of a prefill of one sequence."""
    return shape.prefill_flops(tokens) / prefill_bytes(shape, tokens, dtype)


def tokens_at_ridge(gpu: GpuSpec, shape: ModelShape) -> int:
    """Smallest number of tokens in a batch whose prefill reaches the ridge."""
    return next(tokens for tokens in range(1, 100_000) if intensity(shape, tokens) >= ridge(gpu))


def attention_share(shape: ModelShape, tokens: int) -> float:
    """Part of a prefill's FLOPs that is attention."""
    return shape.attention_flops(tokens) / shape.prefill_flops(tokens)


def attention_is_half(shape: ModelShape) -> int:
    """Tokens, in steps of 1,024, from which attention is half of a prefill's FLOPs."""
    return 1024 * next(k for k in range(1, 1024) if attention_share(shape, k * 1024) >= 0.5)


def kv_per_token(claim: Claim, _: pd.DataFrame) -> list[Verdict]:
    """2 x 32 x 8 x 128 x 2 bytes."""
    kib = shapes.find(MODEL).kv_bytes_per_token(DTYPE) / 1024
    verdict = Answer.CONFIRMED if kib == 128 else Answer.REFUTED
    because = f"K and V of 32 layers, 8 KV heads, head size 128 and 2 bytes make {kib:g} KiB a token."
    return [claim.says(verdict, because, found=kib, origin="arithmetic", where="Llama-3-8B, BF16")]


def nominal_transfer(claim: Claim, tokens: int, passes: int) -> list[Verdict]:
    """34 ms at the nominal rate of PCIe 4.0 x16: `passes` times `tokens` tokens of Llama-3-8B."""
    link = next(gpu.link_bytes_s for gpu in all_specs() if gpu.link == PCIE4_NOMINAL)
    ms = 1e3 * passes * tokens * shapes.find(MODEL).kv_bytes_per_token(DTYPE) / link
    verdict = Answer.CONFIRMED if abs(ms / 34 - 1) <= NEAR else Answer.REFUTED
    because = f"At the nominal {link / 1e9:g} GB/s a direction, which no copy reaches, it is {ms:.1f} ms."
    return [claim.says(verdict, because, found=ms, origin="arithmetic", where=f"{tokens} tokens, nominal PCIe 4.0 x16")]


def ridge_of_a100(claim: Claim, _: pd.DataFrame) -> list[Verdict]:
    """153 for the 80 GB board, 201 for the 40 GB one."""
    large, small = ridge(spec("A100-80GB")), ridge(spec("A100-40GB"))
    holds = [abs(value / 156 - 1) <= NEAR for value in (large, small)]
    verdict = Answer.CONFIRMED if all(holds) else Answer.DEPENDS if any(holds) else Answer.REFUTED
    because = f"It depends on the board: {large:.0f} for 80 GB (2,039 GB/s), {small:.0f} for 40 GB (1,555 GB/s)."
    ends = Interval(min(large, small), max(large, small))
    return [claim.says(verdict, because, found=large, interval=ends, origin="arithmetic", where="A100 SXM data sheets")]


def short_prefills(claim: Claim, _: pd.DataFrame) -> list[Verdict]:
    """Weights are read once, so that intensity is about the tokens of the whole batch."""
    shape = shapes.find(MODEL)
    crossings = {name: tokens_at_ridge(spec(name), shape) for name in ("A100-80GB", "A100-40GB")}
    low, high = min(crossings.values()), max(crossings.values())
    because = (
        f"It depends on the tokens of the whole batch: the ridge is reached at about {crossings['A100-80GB']} tokens "
        f"(80 GB) or {crossings['A100-40GB']} (40 GB), and longer prefills are compute-bound."
    )
    where = "A100, Llama-3-8B, BF16; weights, KV and a rough count of activations"
    ends = Interval(low, high)
    return [claim.says(Answer.DEPENDS, because, found=low, interval=ends, origin="arithmetic", where=where)]


def roofline_sign(claim: Claim, _: pd.DataFrame) -> list[Verdict]:
    """Time = max(FLOP / peak, bytes / bandwidth) is never below FLOP / peak."""
    gpu, shape, tokens = spec("A100-80GB"), shapes.find(MODEL), 64
    at_peak = shape.prefill_flops(tokens) / gpu.bf16_flops
    ratio = max(at_peak, prefill_bytes(shape, tokens) / gpu.hbm_bytes_s) / at_peak
    because = (
        f"The sign is wrong: a memory-bound prefill takes longer than FLOP / peak, {ratio:.1f} times at "
        f"{tokens} tokens on the roofline, because the weights must be read."
    )
    verdict = Answer.CONFIRMED if ratio < 1 else Answer.REFUTED
    return [claim.says(verdict, because, found=ratio, origin="arithmetic", where="A100-80GB, Llama-3-8B, 64 tokens")]


def attention_shares(claim: Claim, _: pd.DataFrame) -> list[Verdict]:
    """13 % at 8K, 23 % at 16K, 38 % at 32K tokens."""
    shape = shapes.find(MODEL)
    shares = {k: attention_share(shape, k * 1024) for k in (8, 16, 32)}
    listed = ", ".join(f"{share:.0%} at {k}K" for k, share in shares.items())
    because = (
        f"It depends on the length: attention, the only quadratic part, is {listed} of the FLOPs and the larger "
        f"half only from about {attention_is_half(shape):,} tokens."
    )
    ends = Interval(shares[8], shares[32])
    where = "Llama-3-8B, causal attention"
    return [claim.says(Answer.DEPENDS, because, found=shares[8], interval=ends, origin="arithmetic", where=where)]


def three_preemptions(claim: Claim, _: pd.DataFrame) -> list[Verdict]:
    """Each resumption reads the whole cache back; a host copy that is kept saves writes only."""
    because = (
        "Each of three resumptions must read the KV cache back: three reads, and three writes in vLLM V0, which frees "
        "the host copy on swap-in, or one write (and what was added since) where the copy is kept."
    )
    where = "three preemptions of one sequence"
    return [claim.says(Answer.REFUTED, because, found=3, origin="arithmetic", where=where)]
