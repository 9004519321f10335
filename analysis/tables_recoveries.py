"""What the recoveries between swap and recompute cost, as tables: one function a question of `analysis.recoveries`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from analysis.recoveries import (
    CURVES,
    FREE,
    PARTS,
    TURNED,
    Batching,
    Hybrid,
    Interference,
    Joined,
    Preemptions,
    Repeated,
    Resumed,
    Ridge,
    RidgePoint,
    Split,
    Subject,
)
from analysis.recovery_rows import Way, together, told_apart
from analysis.sheet import Cell, Line, Sheet

MS, GB, TFLOP = 1e3, 1e-9, 1e-12
POLICIES = {"recompute": "recompute, ms", "swap": "out and in, ms", "swap_kept": "copy kept, ms"}


def ridge_sheets(found: Iterable[Ridge]) -> list[Sheet]:
    """A table a model: prefills by their tokens; below it what the machine reaches at most, and where it turns."""
    return [
        Sheet(
            _title(one.subject),
            _about(one.subject),
            tuple(map(_prefill, one.points)),
            (
                Cell("largest matrix product, TFLOP/s", "peak_tflops", one.peak_flops_s, TFLOP),
                Cell("device memory, GB/s read and written", "memory_gbps", one.memory_bytes_s, GB),
                Cell("ridge as measured, FLOP/byte", "flop_per_byte", one.flop_per_byte),
                Cell("ridge of the data sheet, FLOP/byte", "sheet_flop_per_byte", one.sheet_flop_per_byte),
                Cell("both rates take equally long at, tokens", "roofline_tokens", one.roofline_tokens),
                Cell(f"{TURNED:g} x the time of the shortest at, tokens", "turn_tokens", one.turn_tokens),
            ),
        )
        for one in found
    ]


def _prefill(point: RidgePoint) -> Line:
    return (
        Cell("tokens", "tokens", point.tokens),
        Cell("ms", "time_ms", point.time, MS, point.suspect),
        Cell("TFLOP/s", "tflops", point.flops_s, TFLOP),
        Cell("FLOP/byte", "flop_per_byte", point.flop_per_byte),
        Cell("MFU, %", "mfu_percent", point.mfu, 100.0),
        Cell("% of largest product", "mfu_gemm_percent", point.mfu_gemm, 100.0),
    )


def batching_sheets(found: Iterable[Batching]) -> list[Sheet]:
    """A table a model, policy, way of copying and company: what a sequence adds to the step it joins."""
    return [
        Sheet(
            _title(one.subject, f"{one.policy} joins a {one.company.text}", one.way.text if one.way else ""),
            _about(one.subject) | {"policy": one.policy, "way": _axes(one.way), "company": asdict(one.company)},
            tuple(map(_joined, one.joined)),
            (Cell(f"tokens that add no more than {FREE:.0%} to the step", "free_tokens", one.free),),
        )
        for one in found
    ]


def _joined(point: Joined) -> Line:
    return (
        Cell("tokens", "tokens", point.tokens),
        Cell("step alone, ms", "without_ms", point.without, MS),
        Cell("with it, ms", "with_it_ms", point.with_it, MS, point.suspect),
        Cell("added, ms", "added_ms", point.added, MS),
        Cell("by itself, ms", "alone_ms", point.alone, MS),
        Cell("added / by itself", "share", point.share),
    )


def preemptions_sheets(found: Iterable[Preemptions]) -> list[Sheet]:
    """A table a model, length, growth and way of copying: all preemptions of one sequence by each policy."""
    sheets = []
    for (subject, tokens, growth), group in together(found, lambda one: (one.subject, one.seq_len, one.growth_tokens)):
        computed = {one.policy: one for one in group if one.way is None}
        ways = together([one for one in group if one.way], lambda one: one.way) or [(None, [])]
        for way, copied in ways:
            policies = computed | {one.policy: one for one in copied}
            counts = sorted({point.preemptions for one in policies.values() for point in one.points})
            what = f"{tokens:,} tokens, {growth:,} more each time"
            about = {"seq_len": tokens, "growth_tokens": growth, "way": _axes(way)}
            lines = tuple(_times(count, policies) for count in counts)
            facts = tuple(_one_more(one) for one in policies.values())
            title = _title(subject, what, way.text if way else "")
            sheets.append(Sheet(title, _about(subject) | about, lines, facts))
    return sheets


def _times(count: int, policies: Mapping[str, Preemptions]) -> Line:
    points = {policy: one.at(count) for policy, one in policies.items()}
    swap, copy_kept = points.get("swap"), points.get("swap_kept")
    copied = swap or copy_kept
    saved = swap.time - copy_kept.time if swap and copy_kept else None
    return (
        Cell("times", "preemptions", count),
        *(_all(policy, points.get(policy)) for policy in POLICIES),
        Cell("saved by keeping, ms", "saved_ms", saved, MS),
        Cell("GB out", "gb_out", _sum(swap.bytes_out if swap else ()), GB),
        Cell("GB out, copy kept", "gb_out_kept", _sum(copy_kept.bytes_out if copy_kept else ()), GB),
        Cell("GB in", "gb_in", _sum(copied.bytes_in if copied else ()), GB),
    )


def _all(policy: str, point: Repeated | None) -> Cell:
    time, suspect = (point.time, point.suspect) if point else (None, False)
    return Cell(POLICIES[policy], f"{policy}_ms", time, MS, suspect)


def _sum(sizes: Sequence[int]) -> float | None:
    return float(sum(sizes)) if sizes else None


def _one_more(one: Preemptions) -> Cell:
    return Cell(f"one more by {one.policy}, ms", f"one_more_by_{one.policy}_ms", one.per_preemption, MS)


def hybrid_sheets(found: Iterable[Hybrid]) -> list[Sheet]:
    """A table a model, length and way of copying: each split; below it the best one, as found and as predicted."""
    return [
        Sheet(
            _title(one.subject, f"{one.seq_len:,} tokens", one.way.text),
            _about(one.subject) | {"seq_len": one.seq_len, "way": asdict(one.way)},
            tuple(map(_split, one.splits)),
            (
                Cell("best, % computed", "best_percent", one.best_fraction, 100.0),
                Cell("best, ms", "best_ms", one.best.time, MS),
                Cell("best / the faster of swap and recompute", "best_to_faster", one.to_faster),
                Cell("best / the longer of its parts alone", "best_to_bound", one.to_bound),
                *_predicted(one),
            ),
        )
        for one in found
    ]


def _split(split: Split) -> Line:
    return (
        Cell("% computed", "computed_percent", split.fraction, 100.0),
        Cell("tokens", "front_tokens", split.front_tokens),
        Cell("ms", "time_ms", split.time, MS, split.suspect),
        Cell("computing alone, ms", "front_alone_ms", split.front_alone_s or None, MS),
        Cell("swapping in alone, ms", "rest_alone_ms", split.rest_alone_s or None, MS),
        Cell("the longer of both, ms", "bound_ms", split.bound_s or None, MS),
    )


def _predicted(one: Hybrid) -> Iterator[Cell]:
    keys = {PARTS: "by_parts", CURVES: "by_curves"}
    for guess in one.predicted:
        yield Cell(f"predicted from {guess.by}, % computed", f"{keys[guess.by]}_percent", guess.fraction, 100.0)
        yield Cell(f"predicted from {guess.by}, ms", f"{keys[guess.by]}_ms", guess.time, MS)


def interference_sheets(found: Iterable[Interference]) -> list[Sheet]:
    """A table a model, direction, length and step: how much the step and the swap slow each other down."""
    sheets = []
    parts = together(found, lambda one: (one.subject, one.direction, one.seq_len, one.company))
    for (subject, direction, tokens, company), group in parts:
        names, blocks = told_apart(one.way for one in group)
        title = _title(subject, f"{company.text} beside a {direction.replace('_', ' ')} of {tokens:,} tokens", blocks)
        about = {"direction": direction, "seq_len": tokens, "company": asdict(company)}
        lines = tuple(_beside(one, names[one.way]) for one in sorted(group, key=lambda one: one.timed))
        sheets.append(Sheet(title, _about(subject) | about, lines))
    return sheets


def _beside(one: Interference, name: str) -> Line:
    return (
        Cell("timed", "timed", "step" if one.timed == "company" else "swap"),
        Cell("copied by", "copied_by", name),
        *(Cell("", axis, value) for axis, value in asdict(one.way).items()),
        Cell("alone, ms", "alone_ms", one.alone, MS),
        Cell("beside, ms", "beside_ms", one.beside, MS, one.suspect),
        Cell("beside / alone", "factor", one.factor),
        Cell("s lost for 1 s of the other", "lost", one.lost),
    )


def resume_sheets(found: Iterable[Resumed]) -> list[Sheet]:
    """A table a model and way of copying: until the next token's logits, by length."""
    return [
        Sheet(_title(subject, way.text), _about(subject) | {"way": asdict(way)}, tuple(map(_resumed, group)))
        for (subject, way), group in together(found, lambda one: (one.subject, one.way))
    ]


def _resumed(one: Resumed) -> Line:
    return (
        Cell("tokens", "seq_len", one.seq_len),
        Cell("swap in + step, ms", "swap_ms", one.swap, MS, one.suspect),
        Cell("step alone, ms", "step_alone_ms", one.step_alone_s, MS),
        Cell("recompute, ms", "recompute_ms", one.recompute, MS),
        Cell("recompute / swap in + step", "ratio", one.ratio),
    )


def _title(subject: Subject, *parts: str) -> str:
    return "; ".join(filter(None, (subject.name, subject.what, *parts)))


def _axes(way: Way | None) -> dict[str, Any] | None:
    return asdict(way) if way else None


def _about(subject: Subject) -> dict[str, Any]:
    return asdict(subject) | {"gpu_figure": subject.backend != "cpu", "origin": "measured"}
