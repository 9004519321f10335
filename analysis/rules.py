"""Rules by which other systems choose between swap and recompute, judged on the constants of one setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pandas as pd

from analysis.setting import Setting
from kernels.shapes import ModelShape, dtype_bytes


class Rule(Protocol):
    """Chooses "swap" or "recompute" (or "preserve") for a length and block size in tokens."""

    @property
    def name(self) -> str:
        """What a table calls it."""
        ...

    def choose(self, setting: Setting, tokens: int, block_size: int) -> str:
        """The choice on the setting's constants."""
        ...


@dataclass(frozen=True)
class Threshold:
    """Swap iff longer than `tokens`: what one would write first. LMCache loads past a crossover length likewise."""

    tokens: int

    @property
    def name(self) -> str:
        """With its limit."""
        return f"swap above {self.tokens} tokens"

    def choose(self, setting: Setting, tokens: int, block_size: int) -> str:
        """By length alone."""
        return "swap" if tokens > self.tokens else "recompute"


def mooncake_bytes_per_flop(shape: ModelShape, dtype: str, prefix: int, a: float = 4, b: float = 22) -> float:
    """Least B/G for loading to win: 2 d s / (gqa (a p d + b d^2)), in bytes a FLOP.

    Mooncake (Qin et al., FAST 2025), equation 2: d hidden size, s bytes an element, gqa query heads a KV head, p prefix
    length; a, b = 4, 22 describe a Llama layer. Llama-3-70B at 8192 tokens: 6 GB/s on 8 A800 and 19 GB/s on 8 H800.
    """
    gqa = shape.heads / shape.kv_heads
    return 2 * shape.hidden * dtype_bytes(dtype) / (gqa * (a * prefix * shape.hidden + b * shape.hidden**2))


@dataclass(frozen=True)
class Mooncake:
    """Load iff B/G exceeds `mooncake_bytes_per_flop`: bandwidth against arithmetic, no time a copy.

    B is the fitted rate of swapping in; G the rate at which the fitted linear term does the FLOPs of the linear layers.
    """

    a: float = 4
    b: float = 22

    @property
    def name(self) -> str:
        """The system."""
        return "Mooncake"

    def choose(self, setting: Setting, tokens: int, block_size: int) -> str:
        """By the length, the rate of the link and that of the arithmetic; block size plays no part."""
        if setting.prefill.linear_s == 0:
            return "recompute"
        flops_s = setting.shape.linear_flops(1) / setting.prefill.linear_s
        needed = mooncake_bytes_per_flop(setting.shape, setting.dtype, tokens, self.a, self.b)
        return "swap" if setting.swap_in.bytes_s / flops_s > needed else "recompute"


@dataclass(frozen=True)
class InferCept:
    """Least waste, memory x time, of preserve, discard and swap.

    InferCept (Abhyankar et al., ICML 2024; WukLab/InferCept), read plainly, in token-seconds with C tokens of this
    sequence and `others` tokens of the rest of the batch: preserve holds C while the sequence is away; discard
    recomputes in n chunks, holding what it has rebuilt so far, while the rest waits: R (C (n + 1) / (2 n) + others);
    swap makes everything wait for out and in: S (C + others).

    Attributes
    ----------
    others : int
        Tokens of the other sequences of the batch.
    chunk : int
        Tokens a chunk of recompute; 384 is the saturation point S of their code.
    away_s : float
        Seconds until the sequence goes on. Infinite by default: a preempted sequence must give up its memory, so
        preserving is no choice.
    """

    others: int = 4096
    chunk: int = 384
    away_s: float = math.inf

    @property
    def name(self) -> str:
        """The system."""
        return "InferCept"

    def choose(self, setting: Setting, tokens: int, block_size: int) -> str:
        """The least of the three wastes."""
        chunks = math.ceil(tokens / self.chunk)
        discard = setting.recompute(tokens).value * (tokens * (chunks + 1) / (2 * chunks) + self.others)
        swap = setting.swap(tokens, block_size).value * (tokens + self.others)
        wastes = {"preserve": self.away_s * tokens, "recompute": discard, "swap": swap}
        return min(wastes, key=lambda choice: wastes[choice])


RULES: tuple[Rule, ...] = (Mooncake(), InferCept(), Threshold(1024))


def regret_table(
    setting: Setting, lengths: Sequence[int], block_sizes: Sequence[int], rules: Sequence[Rule] = RULES
) -> pd.DataFrame:
    """What each rule chooses and what that costs beyond the better of swap and recompute, on the same constants.

    Returns
    -------
    pandas.DataFrame
        A row a length, block size and rule: tokens, block_size, trip, rule, swap_ms, recompute_ms, best, choice,
        regret_ms (0 for the right choice; NaN for "preserve", which costs memory and no time).

    Raises
    ------
    BadFit
        If a fit of the setting is refused.
    """
    records = []
    for tokens in lengths:
        for block_size in block_sizes:
            ms = {
                "swap": setting.swap(tokens, block_size).value * 1e3,
                "recompute": setting.recompute(tokens).value * 1e3,
            }
            best = min(ms, key=lambda choice: ms[choice])
            where = {"tokens": tokens, "block_size": block_size, "trip": setting.trip}
            for rule in rules:
                choice = rule.choose(setting, tokens, block_size)
                regret = ms.get(choice, math.nan) - ms[best]
                costs = {"swap_ms": ms["swap"], "recompute_ms": ms["recompute"], "best": best}
                records.append(where | {"rule": rule.name} | costs | {"choice": choice, "regret_ms": regret})
    return pd.DataFrame(records)
