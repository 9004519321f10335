"""Machines with known constants, and the frames of result files that they would write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.contract import ResultFile
from analysis.cost_model import CopyFit, PrefillFit, fit_copies, fit_prefill
from analysis.load import rows
from analysis.setting import Setting
from kernels import shapes
from tests.analysis import synthetic

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
BLOCKS = (4, 16, 64, 256)
SEEDS = range(20)
RESAMPLES = 120


@dataclass(frozen=True)
class Machine:
    """Seconds, seconds a copy, bytes a second; seconds, seconds a token, a token squared; relative noise of a round."""

    fixed_s: float = 200e-6
    per_copy_s: float = 2e-6
    bytes_s: float = 5e9
    issue_fixed_s: float = 100e-6
    issue_per_copy_s: float = 3.5e-6
    floor_s: float = 0.030
    base_s: float = 0.004
    linear_s: float = 60e-6
    quadratic_s: float = 1.5e-9
    noise: float = 0.02
    model: str = "llama-3-8b"
    layout: shapes.Layout = "layer_split"

    @property
    def shape(self) -> shapes.ModelShape:
        return shapes.find(self.model)

    def issue_s(self, copies: float) -> float:
        return self.issue_fixed_s + copies * self.issue_per_copy_s

    def copy_s(self, copies: float, nbytes: float) -> float:
        return max(self.issue_s(copies), self.fixed_s + copies * self.per_copy_s + nbytes / self.bytes_s)

    def prefill_s(self, tokens: float) -> float:
        return max(self.floor_s, self.base_s + self.linear_s * tokens + self.quadratic_s * tokens**2)

    def swap_s(self, tokens: float, block_size: float) -> float:
        """One direction."""
        copies = self.shape.fragments_per_block(self.layout) * tokens / block_size
        return self.copy_s(copies, tokens * self.shape.kv_bytes_per_token("float16"))


def frame(
    machine: Machine,
    seed: int,
    lengths: Sequence[int] = LENGTHS,
    blocks: Sequence[int] = BLOCKS,
    rounds: int = 15,
    sessions: int = 1,
    drift: float = 0.0,
    recompute: bool = True,
) -> pd.DataFrame:
    """What `analysis.load.load` gives for this machine's files; `drift` is the relative spread between sessions."""
    rng = np.random.default_rng(seed)
    files = []
    for session in range(sessions):
        speed = 1 + drift * rng.standard_normal()
        name = f"s{session}"
        benchmarks = _rows(machine, rng, speed, lengths, blocks, rounds, name, recompute)
        document = synthetic.document(benchmarks, synthetic.A100, name)
        files.append(ResultFile(Path(f"{name}.json"), None, document))
    return rows(files)


def _rows(
    machine: Machine,
    rng: np.random.Generator,
    speed: float,
    lengths: Sequence[int],
    blocks: Sequence[int],
    rounds: int,
    session: str,
    recompute: bool,
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def add(wall: float, issue: float, case: dict[str, Any], **info: Any) -> None:
        noise = 1 + machine.noise * rng.standard_normal((2, rounds))
        wall_s, issue_s = (list(seconds * speed * one) for seconds, one in zip((wall, issue), noise, strict=True))
        clocks = {"wall_s": wall_s, "issue_s": issue_s, "device_s": wall_s}
        found.append(synthetic.row(case, wall_s, len(found), session, clocks=clocks, **info))

    for tokens in lengths:
        if recompute:
            add(machine.prefill_s(tokens), 0.001, synthetic.case(machine.model, seq_len=tokens))
        for block_size in blocks:
            copies = machine.shape.fragments_per_block(machine.layout) * tokens // block_size
            nbytes = tokens * machine.shape.kv_bytes_per_token("float16")
            work = {"bytes": nbytes, "descriptors": copies, "fragment_bytes": nbytes // copies}
            work |= {"descriptors_merged": copies, "flops": None}
            how = {"method": "memcpy_loop", "layout": machine.layout, "placement": "scattered"}
            for direction in ("swap_out", "swap_in"):
                case = synthetic.case(
                    machine.model, seq_len=tokens, recovery="swap", direction=direction, block_size=block_size, **how
                )
                add(machine.copy_s(copies, nbytes), machine.issue_s(copies), case, work=work)
    return found


@cache
def fits(seed: int) -> tuple[PrefillFit, dict[str, CopyFit]]:
    """The fits of the default machine's frame, copies by direction; made once for all tests."""
    measured = frame(Machine(), seed)
    [prefill] = fit_prefill(measured, RESAMPLES).values()
    return prefill, {key.direction: fit for key, fit in fit_copies(measured, RESAMPLES).items()}


def setting(seed: int) -> Setting:
    """Round trip on those fits."""
    prefill, copies = fits(seed)
    return Setting(Machine().shape, "float16", "layer_split", prefill, copies["swap_in"], copies["swap_out"])
