"""Claims about what lies between swap and recompute, judged on one machine's rows of those recoveries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from analysis import claims_prefill as prefill
from analysis.claim_types import Answer, Claim, Need, Verdict, answer
from analysis.claims_arithmetic import NEAR
from analysis.claims_arithmetic import ridge as sheet_ridge
from analysis.claims_blocks import within
from analysis.intervals import Estimate
from analysis.measured import Curve, Machine
from analysis.recoveries import (
    Batching,
    Interference,
    Preemptions,
    Repeated,
    Ridge,
    Subject,
    batching,
    interference,
    preemptions,
    ridge,
)
from analysis.recoveries_ridge import SHEET_DTYPES, memory_bytes_s, peak_flops_s
from analysis.recovery_rows import is_suspect
from kernels.specs import GpuSpec

One = TypeVar("One")
MS, GB = 1e3, 1e9
RIDGE_OF_A100 = 156  # FLOP/byte
ONCE = 1.25  # three preemptions cost at most a quarter more than one
SERIAL = 0.9  # seconds a step loses for each second of swap beside it, from which the two take turns

PROBES = tuple(
    Need("sweep quick, table [ridge]", "ridge", axes)
    for axes in ({"probe": ("gemm",), "dtype": SHEET_DTYPES}, {"probe": ("memory",)})
)
RIDGE_PREFILLS = Need("sweep quick, table [ridge]", "ridge", {"probe": ("prefill",)}, ("seq_len",))
JOINS = Need(
    "sweep quick, table [batching]",
    "batching",
    {"policy": ("recompute",), "company": ("prefill",)},
    note="and the same without company",
)
AGAIN = tuple(
    Need("sweep quick, table [preemptions]", "preemptions", {"policy": ("swap", "swap_kept"), "preemptions": (count,)})
    for count in (1, 3)
)
BESIDE = Need("sweep quick, table [interference]", "interference", {"timed": ("company",), "direction": ("swap_in",)})


def measured_ridge(claim: Claim, machine: Machine) -> list[Verdict]:
    """Largest measured rate of a matrix product over that of a copy within device memory, beside the data sheet's."""
    memory = memory_bytes_s(machine.frame, machine.name)
    found = []
    for dtype in SHEET_DTYPES:
        peak = peak_flops_s(machine.frame, machine.name, dtype)
        if peak and memory:
            found.append(_ridge(claim, machine, dtype, peak, memory))
    return found


def _ridge(claim: Claim, machine: Machine, dtype: str, peak: Estimate, memory: Estimate) -> Verdict:
    measured, frame = peak / memory, machine.frame
    doubt = _doubt(is_suspect(frame[frame["probe"].isin(["gemm", "memory"])]))
    because = (
        f"Matrix products reached {peak.value / 1e12:,.0f} TFLOP/s and copies within device memory "
        f"{memory.value / GB:,.0f} GB/s, which makes {measured.value:.0f} FLOP/byte{_sheet(machine.spec)}{doubt}."
    )
    if machine.spec is None or not machine.spec.name.startswith("A100"):
        return claim.not_tested(f"The claim is about an A100. {because}", machine.name)
    holds = within(measured, RIDGE_OF_A100 * (1 - NEAR), RIDGE_OF_A100 * (1 + NEAR))
    return _measured(claim, machine, answer([holds]), because, measured, f"{dtype}, measured peak and bandwidth")


def _sheet(spec: GpuSpec | None) -> str:
    if spec is None:
        return ""
    figures = f"{spec.bf16_flops / 1e12:,.0f} TFLOP/s and {spec.hbm_bytes_s / GB:,.0f} GB/s"
    return f"; the data sheet's {figures} make {sheet_ridge(spec):.0f}"


def measured_shortness(claim: Claim, machine: Machine) -> list[Verdict]:
    """Recompute times over the length, and prefills of the ridge over the tokens of the batch."""
    by_ridge = [verdict for one in ridge(machine.frame) if (verdict := _turn(claim, machine, one))]
    return prefill.measured_shortness(claim, machine) + by_ridge


def _turn(claim: Claim, machine: Machine, one: Ridge) -> Verdict | None:
    curve = Curve(one.subject.model, one.subject.dtype, 1, tuple((p.tokens, p.time) for p in one.points))
    judged = prefill.shortness(claim, prefill.steps_of(curve), machine.name, f"measured ({machine.name})")
    if judged is None or one.turn_tokens is None:
        return None
    shortest = f"{one.floor_tokens:,} token{'s' if one.floor_tokens > 1 else ''}"
    because = f"{judged.because[:-1]}; tokens at twice the time of {shortest}: {one.turn_tokens.text}"
    if one.roofline_tokens:
        because += f"; tokens at the ridge, by the measured peak and bandwidth: {one.roofline_tokens.text}"
    turn = one.turn_tokens.tokens
    where = f"{one.subject.what}; {judged.where}"
    because += _doubt(any(point.suspect for point in one.points))
    return replace(judged, because=f"{because}.", found=turn.value, interval=turn.interval, where=where)


def measured_marginal(claim: Claim, machine: Machine) -> list[Verdict]:
    """Time added to a prefill over the time alone, for every length and prefill; and what rides free on a step."""
    found = batching(machine.frame)
    rows = [one for one in found if one.policy == "recompute"]
    joins = [one for one in rows if one.company.kind == "prefill" and any(join.share for join in one.joined)]
    return [_marginal(claim, machine, mine, rows) for mine in _by(joins, lambda one: one.subject)]


def _marginal(claim: Claim, machine: Machine, joins: Sequence[Batching], rows: Sequence[Batching]) -> Verdict:
    shares = [
        (f"{join.tokens:,} into {one.company.size:,}", join.share)
        for one in joins
        for join in one.joined
        if join.share is not None
    ]
    outcomes = [within(share, -np.inf, prefill.FAR_SMALLER) for _, share in shares]
    values = sorted((share for _, share in shares), key=lambda share: share.value)
    held = _held([name for name, _ in shares], outcomes)
    because = (
        f"Tokens that join a prefill cost {values[0].value:.2f} to {values[-1].value:.2f} of what they cost alone, "
        f"half or less {held}{_free(joins[0].subject, rows)}"
        f"{_doubt(any(join.suspect for one in joins for join in one.joined))}."
    )
    where = f"{joins[0].subject.what}; tokens that join a prefill of so many"
    return _measured(claim, machine, answer(outcomes), because, values[-1], where)


def _free(subject: Subject, rows: Iterable[Batching]) -> str:
    """What rides free on the largest decode step that was timed."""
    steps = [one for one in rows if one.subject == subject and one.free]
    if not steps:
        return ""
    largest = max(steps, key=lambda one: one.company.size)
    return f"; on a {largest.company.text} {largest.free.text if largest.free else 'no'} tokens ride free"


def measured_preemptions(claim: Claim, machine: Machine) -> list[Verdict]:
    """Time of three preemptions over that of one, by policy: really run."""
    found = preemptions(machine.frame)
    runs = [
        _Runs(one, thrice, thrice.time / once.time)
        for one in found
        if one.policy != "recompute" and (once := one.at(1)) and (thrice := one.at(3))
    ]
    return [_thrice(claim, machine, mine, found) for mine in _by(runs, lambda run: (run.of.subject, run.of.policy))]


class _Runs(NamedTuple):
    """One policy, its three preemptions, and their time over that of one."""

    of: Preemptions
    thrice: Repeated
    ratio: Estimate


def _thrice(claim: Claim, machine: Machine, runs: Sequence[_Runs], found: Sequence[Preemptions]) -> Verdict:
    most, thrice, ratio = max(runs, key=lambda run: run.ratio.value)
    writes, reads = (sum(1 for nbytes in moved if nbytes) for moved in (thrice.bytes_out, thrice.bytes_in))
    because = (
        f"Three preemptions by {most.policy} take {ratio.value:.2f} times one, with {writes} writes and {reads} reads "
        f"of {sum(thrice.bytes_out + thrice.bytes_in) / GB:.3g} GB in all: {thrice.time.value * MS:.3g} ms"
        f"{_computed(most, found)}{_doubt(any(point.suspect for run in runs for point in run.of.points))}."
    )
    where = f"{most.subject.what}; {most.policy}, {most.seq_len:,} tokens growing by {most.growth_tokens:,}"
    verdict = answer([within(run.ratio, 0, ONCE) for run in runs])
    judged = _measured(claim, machine, verdict, because, ratio, where)
    return replace(judged, claimed=f"<= {ONCE}", unit="times one preemption")


def _computed(swapped: Preemptions, found: Sequence[Preemptions]) -> str:
    """What recompute takes for the same three."""
    same = (swapped.subject, swapped.seq_len, swapped.growth_tokens)
    for one in found:
        if one.policy == "recompute" and (one.subject, one.seq_len, one.growth_tokens) == same and (run := one.at(3)):
            return f"; recompute takes {run.time.value * MS:.3g} ms"
    return ""


def measured_serial(claim: Claim, machine: Machine) -> list[Verdict]:
    """Seconds that a step loses for each second of swap in beside it: 1 where the two take turns."""
    rows = [one for one in interference(machine.frame) if (one.timed, one.direction) == ("company", "swap_in")]
    return [_serial(claim, machine, mine) for mine in _by([one for one in rows if one.lost], lambda one: one.subject)]


def _serial(claim: Claim, machine: Machine, rows: Sequence[Interference]) -> Verdict:
    lost = [(one, one.lost) for one in rows if one.lost is not None]
    outcomes = [within(seconds, SERIAL, np.inf) for _, seconds in lost]
    most, seconds = max(lost, key=lambda pair: pair[1].value)
    names = [f"{one.way.copied} beside a {one.company.text}" for one, _ in lost]
    because = (
        f"Steps take {most.factor.value:.2f} times as long beside a swap in by {most.way.copied}, the copy that costs "
        f"them most: {seconds.value:.2f} s for each second of swap, where 1 would be taking turns; "
        f"they take turns {_held(names, outcomes)}{_doubt(any(one.suspect for one in rows))}."
    )
    where = f"{most.subject.what}; {most.company.text}, {most.seq_len:,} tokens swapped in"
    verdict = _measured(claim, machine, answer(outcomes), because, seconds, where)
    return replace(verdict, claimed=f">= {SERIAL}", unit="s lost / s of swap")


def _measured(claim: Claim, machine: Machine, verdict: Answer, because: str, found: Estimate, where: str) -> Verdict:
    origin = f"measured ({machine.name})"
    return claim.says(verdict, because, found=found, origin=origin, machine=machine.name, where=where)


def _doubt(suspect: bool) -> str:
    return "; some of these rows are suspect" if suspect else ""


def _held(names: Sequence[str], outcomes: Sequence[bool | None]) -> str:
    """In how many cases it holds; which, if only in some."""
    held = [name for name, holds in zip(names, outcomes, strict=True) if holds]
    undecided = sum(holds is None for holds in outcomes)
    some = f" ({'; '.join(held[:4])}{'; ...' if len(held) > 4 else ''})" if 0 < len(held) < len(names) else ""
    spans = f", undecided in {undecided}" if undecided else ""
    return f"in {len(held)} of {len(names)} cases{some}{spans}"


def _by(found: Iterable[One], key: Callable[[One], object]) -> list[list[One]]:
    grouped: dict[object, list[One]] = {}
    for one in found:
        grouped.setdefault(key(one), []).append(one)
    return list(grouped.values())
