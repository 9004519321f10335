"""Device bytes that a pass takes beside its weights and its pool, worked out before anything is allocated.

An upper bound on the tensors that torch holds at the widest moment of a layer, or at the logits, whichever is more:
with eager pieces between the matrix products, on the attention backend that takes most. Compiled pieces and
FlashAttention take less. `tests/kernels/test_activations.py` holds it against traced passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.attention import usable_attention
from kernels.decode import PROGRAMS_A_MULTIPROCESSOR, no_paged
from kernels.device import Device
from kernels.paged_kv import Geometry
from kernels.sequences import Run, runs
from kernels.shapes import ModelShape, dtype_bytes

MULTIPROCESSORS = 256  # no chip has more; scratch of the paged kernel grows with their number
INDEX_BYTES = 8
TRIAL_TOKENS = 16
SCORES = 4  # of MATH, in float32 and at once: scores, with the mask added, their softmax, and that without empty rows


@dataclass(frozen=True)
class Attending:
    """What of attention runs on a device, as far as memory is concerned.

    Attributes
    ----------
    fused : bool
        A fused kernel: memory grows with the tokens and not with their square.
    paged : bool
        Sequences that decode read K and V in place; else they are gathered first.
    """

    fused: bool = True
    paged: bool = True

    def in_place(self, run: Run) -> bool:
        """Sequences that read the pool's blocks without a copy."""
        return self.paged and run.length == 1 and run.cached > 0


@dataclass(frozen=True)
class Pass:
    """The tokens of one pass: new and cached ones of each sequence, those that decode first."""

    new: Sequence[int]
    cached: Sequence[int]

    @classmethod
    def of(cls, batch: int, new: int, cached: int = 0) -> Pass:
        """`batch` sequences that are alike."""
        return cls([new] * batch, [cached] * batch)

    def beside(self, other: Pass) -> Pass:
        """The sequences of both in one pass."""
        return Pass([*self.new, *other.new], [*self.cached, *other.cached])

    @property
    def tokens(self) -> int:
        """New tokens."""
        return sum(self.new)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Neighbours that are alike."""
        return runs(self.new, self.cached)


def attending_on(device: Device, shape: ModelShape, dtype: str) -> Attending:
    """What runs for this model on `device`, found out on a few tokens."""
    fused = usable_attention(device, shape, dtype, TRIAL_TOKENS, TRIAL_TOKENS) != ("MATH",)
    return Attending(fused, no_paged(device, dtype) is None)


def pass_bytes(geometry: Geometry, tokens: Pass, attending: Attending) -> int:
    """Bytes of a pass's inputs and, at the widest moment, of what it computes.

    Parameters
    ----------
    geometry : Geometry
        Of the pool: model, element type and block size.
    """
    shape, element, count = geometry.shape, dtype_bytes(geometry.dtype), tokens.tokens
    stream = 3 * shape.hidden  # residual, what the layer before adds to it, the norm of both
    moments = (
        count * (stream + _attention_width(shape)) * element + _attention_bytes(geometry, tokens, attending),
        count * (stream + _mlp_width(shape)) * element,
        (2 * count * shape.hidden + len(tokens.new) * (shape.vocab + 4 * shape.hidden)) * element,
    )
    return _held_bytes(geometry, tokens, attending) + max(moments)


def _held_bytes(geometry: Geometry, tokens: Pass, attending: Attending) -> int:
    """Made before the pass: tokens and their places, cosines and sines, block tables, scratch of the paged kernel."""
    shape = geometry.shape
    rotary = shape.head_dim * dtype_bytes(geometry.dtype) if shape.positions == "rotary" else 0
    blocks = sum(geometry.blocks_for(run.cached + run.length) * run.batch for run in tokens.runs)
    decoding = sum(run.batch for run in tokens.runs if attending.in_place(run))
    scratch = 0
    if decoding:
        programs = MULTIPROCESSORS * PROGRAMS_A_MULTIPROCESSOR + decoding * shape.kv_heads
        scratch = 4 * programs * (shape.heads // shape.kv_heads) * (shape.head_dim + 2)
    return tokens.tokens * (4 * INDEX_BYTES + rotary) + 2 * blocks * INDEX_BYTES + scratch


def _attention_width(shape: ModelShape) -> int:
    """Elements a token: Q K V; while they turn, or turned and with what attention gives and its projection."""
    turning = turned = 0
    if shape.positions == "rotary":
        turned = shape.q_width + shape.kv_width
        turning = 3 * turned
    attended = shape.q_width + max(shape.q_width, shape.hidden)  # joined over runs; projected
    return shape.q_width + 2 * shape.kv_width + max(turning, turned + attended)


def _mlp_width(shape: ModelShape) -> int:
    """Elements a token: both halves of the gate, SiLU and the product; or ReLU in place, and the projection."""
    if shape.mlp == "gated":
        return 2 * shape.ffn + max(2 * shape.ffn, shape.ffn + shape.hidden)
    return shape.ffn + shape.hidden


def _attention_bytes(geometry: Geometry, tokens: Pass, attending: Attending) -> int:
    """What attention takes beyond Q, K, V and its result: of the run of alike sequences that takes most."""
    return max(0 if attending.in_place(run) else _run_bytes(geometry, run, attending.fused) for run in tokens.runs)


def _run_bytes(geometry: Geometry, run: Run, fused: bool) -> int:
    shape, element, context = geometry.shape, dtype_bytes(geometry.dtype), run.cached + run.length
    gathered = geometry.blocks_for(context) * geometry.block_size * 2 * shape.kv_width if run.cached else 0
    repeated = context * 2 * shape.q_width if shape.heads != shape.kv_heads else 0
    # As booleans, turned round, as numbers, and those with padded rows: for kernels that know no mask of this kind.
    mask = run.length * context * (2 + 2 * element) if run.cached and run.length > 1 else 0
    return run.batch * (gathered + repeated) * element + mask + (0 if fused else _unfused_bytes(shape, element, run))


def _unfused_bytes(shape: ModelShape, element: int, run: Run) -> int:
    """MATH computes in float32, or wider: scores of every pair, a mask, and Q, K and V over again, scaled too."""
    wide, context = max(4, element), run.cached + run.length
    pairs = run.length * context
    again = run.batch * (3 * (run.length + context) * shape.q_width + 2 * context * shape.kv_width)
    return wide * (SCORES * run.batch * shape.heads * pairs + again + 2 * pairs)
