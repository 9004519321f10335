"""Prefill of a decoder stack that writes K and V into a pool's blocks: the recompute side of the comparison.

Linear layers run on all tokens packed together, attention per sequence, the LM head on last tokens only, as a serving
engine's prefill does. What one model has and another has not follows from its `ModelShape`. Tokens that the blocks
hold already (`Sequences.cached`: a cached prefix) are attended to and not computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernels.attention import pinned, with_tables
from kernels.device import Device
from kernels.forward import check_pool, prepare_forward
from kernels.paged_kv import Pool
from kernels.sequences import Sequences, check_sequences
from kernels.step import Step, usable_for
from kernels.weights import Weights

__all__ = ["TIMED_PART", "Prefill", "check_pool", "prepare"]

# What the clocks see between the start and the end of `Step.issue`, in order. Sampling a token is not in it.
TIMED_PART = (
    "embedding",
    "norms",
    "qkv",
    "positions",
    "kv_write",
    "attention",
    "output_projection",
    "mlp",
    "final_norm",
    "lm_head_last_token",
)


Prefill = Step  # what `prepare` gives


def prepare(
    device: Device,
    weights: Weights,
    pool: Pool,
    sequences: Sequences,
    attention: str | None = None,
    compile: bool = False,
    ended: Sequence[bool] | None = None,
) -> Step:
    """Everything of a prefill that is not timed: checks, slots, positions, rotary tables, compilation.

    Parameters
    ----------
    pool : Pool
        Device memory, of as many layers and of the type that `weights` have.
    attention : str, optional
        One of `usable_attention`; by default the first of them.
    compile : bool
        Fuse the pieces between matrix products with `torch.compile`. Where that fails they stay eager and
        `Step.pointwise.refusal` says why.
    ended : sequence of bool, optional
        For each sequence whether `issue` is to give its logits; by default of every one.

    Raises
    ------
    ValueError
        If pool, weights and sequences do not fit together, or `attention` is unknown.
    """
    check_pool(device, weights, pool)
    check_sequences(sequences, weights.shape, pool)
    parts = with_tables(sequences, pool.geometry.block_size, device.torch_device)
    name = attention or usable_for(device, weights, parts)[0]
    with pinned(name):  # refuses an unknown name
        return Step(name, parts, prepare_forward(device, weights, pool, sequences, compile, ended))
