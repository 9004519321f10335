"""Where swapping and recomputing cost the same: over length, block size, link rate and number of preemptions.

The questions; how crossings are found is `analysis.crossings`, what the two cost is `analysis.setting`, and what other
systems would choose is `analysis.rules`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from analysis.crossings import Crossing, Crossover, crossover, crossover_measured
from analysis.intervals import Estimate
from analysis.rules import regret_table
from analysis.setting import Setting
from kernels.shapes import ModelShape

__all__ = [
    "Crossing",
    "Crossover",
    "Setting",
    "break_even_intensity",
    "break_even_link",
    "crossover",
    "crossover_batch",
    "crossover_block_size",
    "crossover_link",
    "crossover_measured",
    "crossover_preemptions",
    "crossover_tokens",
    "regret_table",
]


def crossover_tokens(
    setting: Setting, block_size: int, low: float = 64, high: float = 131072, preemptions: int = 1, keep: bool = False
) -> Crossover:
    """Length in tokens at which both cost the same. `keep`: the host copy outlives the swap in."""
    found = crossover(
        lambda x: (setting.swap(x, block_size, preemptions, keep), setting.recompute(x, preemptions)),
        "tokens",
        low,
        high,
    )
    return _noted(found, lambda x: setting.beyond_data(x, block_size))


def crossover_block_size(
    setting: Setting, tokens: int, low: float = 1, high: float = 256, preemptions: int = 1, keep: bool = False
) -> Crossover:
    """Block size in tokens at which both cost the same, for a length."""
    found = crossover(
        lambda x: (setting.swap(tokens, x, preemptions, keep), setting.recompute(tokens, preemptions)),
        "tokens a block",
        low,
        high,
    )
    return _noted(found, lambda x: setting.beyond_data(tokens, x))


def crossover_link(setting: Setting, tokens: int, block_size: int, low: float = 1e8, high: float = 1e12) -> Crossover:
    """Link rate in bytes/s, the same in both directions, at which both cost the same; other constants stay."""
    found = crossover(
        lambda x: (setting.at_rate(x).swap(tokens, block_size), setting.recompute(tokens)), "bytes/s", low, high
    )
    return _noted(found, lambda _: setting.beyond_data(tokens, block_size))


def crossover_preemptions(
    setting: Setting, tokens: int, block_size: int, high: int = 64, keep: bool = True
) -> Crossover:
    """Number of preemptions k of one sequence at which both cost the same: k recomputes against one write and k reads.

    With `keep` False both sides grow as k (vLLM V0 frees the host copy on swap in, `block_manager.py`), so there is no
    crossing but where they tie.
    """
    found = crossover(
        lambda k: (setting.swap(tokens, block_size, k, keep), setting.recompute(tokens, k)), "preemptions", 1, high
    )
    return _noted(found, lambda _: setting.beyond_data(tokens, block_size))


def crossover_batch(setting: Setting, tokens: int, block_size: int, high: int = 64) -> Crossover:
    """Number of sequences of `tokens` tokens each, preempted and brought back together, at which both cost the same.

    A batch shares the floor (one read of the weights) and the fixed part of a prefill, and the fixed part of a swap.
    """

    def costs(sequences: float) -> tuple[Estimate, Estimate]:
        together = replace(setting, prefill=setting.prefill.for_batch(sequences))
        return setting.swap(tokens * sequences, block_size), together.recompute(tokens)

    found = crossover(costs, "sequences", 1, high)
    return _noted(found, lambda _: setting.beyond_data(tokens, block_size))


def _noted(found: Crossover, beyond: Callable[[float], tuple[str, ...]]) -> Crossover:
    """With what was beyond the data at each crossing, or at the ends of the range where there is none."""
    places = [crossing.at for crossing in found.crossings] or [found.low, found.high]
    return replace(found, notes=tuple(dict.fromkeys(note for place in places for note in beyond(place))))


def break_even_intensity(shape: ModelShape, dtype: str, passes: int = 2) -> float:
    """FLOP/s over bytes/s above which recompute beats a full-rate swap: FLOP a KV byte / passes over the link.

    Closed form of linear layers against bytes (`roofline_check.py`): 53,248 for Llama-3-8B, round trip (2 passes).
    """
    return shape.flops_per_kv_byte(dtype) / passes


def break_even_link(
    shape: ModelShape, dtype: str, tokens: int, flops_s: float, hbm_bytes_s: float = math.inf, passes: int = 2
) -> float:
    """Bytes/s a direction at which `passes` full-rate copies of the KV cache take as long as a prefill at `flops_s`.

    The prefill takes max(FLOP / flops_s, weight bytes / hbm_bytes_s) (`roofline_check.py`): Llama-3-8B, 4096 tokens,
    half of an A100's 312 TFLOP/s, round trip: 2.72e9.
    """
    prefill = max(shape.prefill_flops(tokens) / flops_s, shape.weight_bytes(dtype) / hbm_bytes_s)
    return passes * shape.kv_bytes_per_token(dtype) * tokens / prefill
