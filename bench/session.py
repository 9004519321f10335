"""One run of `pytest bench/`: its sweep, cases and device, and what became of every case."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench import evidence, rows
from bench.cases import CEILING, Case
from bench.grids import GRIDS
from bench.machine import machine_info, peak_host_bytes
from bench.measure import Benchmark, Switch, measure
from bench.memory import held_blocks
from bench.nvml import Nvml
from bench.rows import Work
from bench.sweep import Axes, Sweep
from bench.utilization import fastest_gemm
from bench.workbench import Workbench
from kernels.device import Device, host_total_bytes, open_device

CEILING_MARGIN = 1.02


class NeverFits(ValueError):
    """A length whose KV cache is larger than the whole memory of the device or the host."""


@dataclass
class Session:
    """State of the run.

    Attributes
    ----------
    cases : dict of str to Case
        By id; an id is what a test is parametrised with.
    order : dict of str to int
        Place of each case in the run.
    rows : list of dict
        What has been measured so far.
    skipped, failed : list of dict
        {case, reason} of what left no number; pytest-benchmark would drop them.
    """

    sweep: Sweep
    device_name: str
    seed: int
    arguments: list[str]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: float = field(default_factory=time.monotonic)
    order: dict[str, int] = field(default_factory=dict)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    _ceilings: dict[tuple[Any, ...], float] = field(default_factory=dict)
    _gemm_flops: dict[str, float] = field(default_factory=dict)
    _device: Device | None = None
    _workbench: Workbench | None = None
    _nvml: Nvml | None = None

    def __post_init__(self) -> None:
        self.tables = {name: {case.id: case for case in GRIDS[name](axes)} for name, axes in self.sweep.tables.items()}
        self.cases = {case_id: case for table in self.tables.values() for case_id, case in table.items()}

    @property
    def device(self) -> Device:
        """The device of the run, opened when first asked for."""
        if self._device is None:
            self._device = open_device(self.device_name)
        return self._device

    @property
    def nvml(self) -> Nvml:
        """NVML's view of the device; silent on a CPU."""
        if self._nvml is None:
            facts = self.device.facts()
            self._nvml = Nvml(facts["uuid"] if facts else None, present=facts is not None)
        return self._nvml

    @property
    def workbench(self) -> Workbench:
        """Memory for the cases that were collected."""
        if self._workbench is None:
            chosen = (self.cases[case_id] for case_id in self.order)
            sized = [(case, self.axes(case).pool_tokens) for case in chosen]
            self._workbench = Workbench(self.device, self.nvml, sized, self.seed)
        return self._workbench

    def gemm_flops(self, dtype: str) -> float | None:
        """FLOP/s of the fastest matrix product here, measured when first asked for; None where none has room.

        Ask before a case takes its memory.
        """
        if dtype not in self._gemm_flops and (measured := fastest_gemm(self.device, dtype)):
            self._gemm_flops[dtype] = measured
        return self._gemm_flops.get(dtype)

    def axes(self, case: Case) -> Axes:
        """The axes the case came from."""
        return self.sweep.tables[case.recovery]

    def check_lengths(self) -> None:
        """NeverFits for a sequence whose KV cache exceeds the memory there is, used or free."""
        facts = self.device.facts()
        total_host = host_total_bytes()
        total = {"device": facts["memory_bytes"] if facts else total_host, "host": total_host}
        for case in (self.cases[case_id] for case_id in self.order):
            asked = held_blocks(case) * case.geometry.block_bytes
            for side in ("device", "host") if case.crosses_link else ("device",):
                if asked > total[side]:
                    held = f"{case.tokens:,} tokens of {case.model} in blocks of {case.geometry.block_size}"
                    what = f"{case.fragments:,} fragments" if case.fragments else held
                    raise NeverFits(f"{what} are {asked:,} bytes of KV cache; the {side} has {total[side]:,} in all")

    def time_case(
        self,
        case: Case,
        benchmark: Benchmark,
        issue: Any,
        work: Work,
        *,
        prepare_s: float,
        verified: bool,
        detail: dict[str, Any],
        baseline: Any = None,
        beside: Switch | None = None,
    ) -> dict[str, Any]:
        """Measure an issue and write the row into the benchmark's `extra_info`.

        With a `baseline` (an issue too) both are measured, turn about; `beside` runs beside the issue alone.
        """
        before = evidence.snapshot(self.nvml)
        measured = measure(benchmark, issue, self.device, self.axes(case).budget_s, baseline, beside)
        after = evidence.snapshot(self.nvml)
        extra_info = rows.row(
            case,
            work,
            measured,
            prepare_s=prepare_s,
            verified=verified,
            suspect=evidence.suspect_reasons(before, after),
            session=self.id,
            order=self.order[case.id],
            detail=detail | evidence.bits_of(after),
        )
        self._hold_against_ceiling(case, extra_info)
        benchmark.extra_info.update(extra_info)
        self.rows.append(extra_info)
        return extra_info

    def _hold_against_ceiling(self, case: Case, extra_info: dict[str, Any]) -> None:
        """Remember a ceiling; put it beside what was copied otherwise, and distrust what is faster than it.

        LMCache#1755 logged 325 GB/s over PCIe: a rate above the same run's ceiling is a wrong clock or a wrong count.
        """
        if case.recovery not in ("swap", "copy"):
            return
        rate, key = gbps(extra_info), _ceiling_key(case)
        ceiling = self._ceilings.get(key)
        extra_info["detail"]["ceiling_gbps"] = None if case.is_ceiling and not case.repeat else ceiling
        if case.method == CEILING:
            self._ceilings.setdefault(key, rate)
        elif ceiling and rate > CEILING_MARGIN * ceiling:
            extra_info["suspect"].append(f"faster than the ceiling by more than {CEILING_MARGIN - 1:.0%}")

    def add_to(self, output: dict[str, Any]) -> None:
        """Put the suite's own keys into the JSON that pytest-benchmark is about to write."""
        output["schema"] = rows.SCHEMA
        output["session"] = {
            "id": self.id,
            "sweep": self.sweep.as_dict(),
            "seed": self.seed,
            "arguments": self.arguments,
            "seconds": round(time.monotonic() - self.started, 3),
            "peak_host_bytes": peak_host_bytes(),
        }
        output["skipped"], output["failed"] = self.skipped, self.failed

    def machine(self) -> dict[str, Any]:
        """The suite's part of `machine_info`."""
        bench = self._workbench
        known = (bench.link, bench.pinned_by, bench.bound) if bench else (None, None, False)
        return machine_info(self.device, self.nvml, *known)


def _ceiling_key(case: Case) -> tuple[Any, ...]:
    if case.fragment_bytes and case.fragments:
        return case.fragment_bytes * case.fragments, case.direction
    return case.model, case.dtype, case.layers_timed, case.seq_len, case.batch, case.direction


def gbps(extra_info: dict[str, Any]) -> float:
    """Payload rate of a copy by the median of its wall clock, GB/s."""
    return float(extra_info["work"]["bytes"] / median(extra_info["clocks"]["wall_s"]) / 1e9)
