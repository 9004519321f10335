"""Where swap and recompute tie on one basis: over length, block size, link rate and number of preemptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from analysis.basis import TRIPS, Basis, thin
from analysis.crossings import Crossing, Curves
from analysis.crossover import (
    Crossover,
    crossover,
    crossover_batch,
    crossover_block_size,
    crossover_link,
    crossover_measured,
    crossover_preemptions,
    crossover_tokens,
)
from analysis.intervals import Estimate, Interval
from analysis.setting import Setting
from analysis.tables import digits

GB = 1e9
MOST_PREEMPTIONS = 64
LENGTH, BLOCK, LINK, PREEMPTIONS, BATCH = "length", "block size", "link rate", "preemptions", "batch"
QUESTIONS = (LENGTH, BLOCK, LINK, PREEMPTIONS, BATCH)


@dataclass(frozen=True, eq=False)
class Tie:
    """One answer.

    Attributes
    ----------
    question : str
        One of `QUESTIONS`.
    tokens, block_size : int or None
        What is held fixed; None where it is what was asked, or does not matter.
    kept : bool or None
        Preemptions: whether the host copy outlives the swap in.
    text : str
        The answer in words.
    found : Crossover or None
        None where the medians do not say.
    """

    question: str
    tokens: int | None
    block_size: int | None
    trip: str
    kept: bool | None
    kind: str
    text: str
    found: Crossover | None

    def values(self) -> dict[str, Any]:
        """Plain values."""
        names = ("question", "tokens", "block_size", "trip", "kept", "kind", "text")
        return {name: getattr(self, name) for name in names} | _crossover_values(self.found)


def ties(basis: Basis, trips: tuple[str, ...] = TRIPS) -> list[Tie]:
    """All answers of one basis, question by question."""
    return [
        tie for ask in (_lengths, _blocks, _links, _preemptions, _batches) for trip in trips for tie in ask(basis, trip)
    ]


def _lengths(basis: Basis, trip: str) -> Iterator[Tie]:
    setting = basis.on_trip(trip)
    for size in basis.block_sizes:
        if setting:
            found: Crossover | None = crossover_tokens(setting, size)
        else:
            found = _between({tokens: basis.measured(tokens, size, trip) for tokens in basis.lengths}, "tokens")
        yield _tie(LENGTH, basis, found, trip, block_size=size)


def _blocks(basis: Basis, trip: str) -> Iterator[Tie]:
    setting = basis.on_trip(trip)
    for tokens in basis.lengths:
        if setting:
            found: Crossover | None = crossover_block_size(setting, tokens)
        else:
            sizes = sorted({point.block_size for panel in basis.panels for point in panel.points})
            found = _between({size: basis.measured(tokens, size, trip) for size in sizes}, "tokens a block")
        yield _tie(BLOCK, basis, found, trip, tokens=tokens)


def _links(basis: Basis, trip: str) -> Iterator[Tie]:
    """With constants: their time a copy stays. Without: copies at the full rate of the link, one time alone."""
    setting = basis.on_trip(trip)
    for tokens in basis.lengths:
        if setting:
            for size in basis.block_sizes:
                found = _scaled(crossover_link(setting, tokens, size), 1 / GB, "GB/s a direction")
                yield _tie(LINK, basis, found, trip, tokens=tokens, block_size=size)
        elif basis.shape and (recompute := _recompute(basis, tokens)):
            nbytes = tokens * basis.batch * basis.shape.kv_bytes_per_token(basis.dtype)
            passes = 1 if trip == "load-only" else 2
            yield _tie(LINK, basis, _rate(_over(passes * nbytes / GB, recompute)), trip, tokens=tokens)


def _preemptions(basis: Basis, trip: str) -> Iterator[Tie]:
    """Of round trips: k loads against k recomputes tie for every k or for none."""
    setting = basis.on_trip(trip)
    for tokens in basis.lengths if trip == "round-trip" else ():
        for size in basis.block_sizes:
            for kept in (True, False):
                found = _preempted(basis, setting, tokens, size, kept)
                yield _tie(PREEMPTIONS, basis, found, trip, tokens=tokens, block_size=size, kept=kept)


def _batches(basis: Basis, trip: str) -> Iterator[Tie]:
    """With constants only: medians of single sequences say nothing of a batch."""
    setting = basis.on_trip(trip)
    for tokens in basis.lengths if setting else ():
        for size in basis.block_sizes:
            assert setting is not None
            yield _tie(BATCH, basis, crossover_batch(setting, tokens, size), trip, tokens=tokens, block_size=size)


def _preempted(basis: Basis, setting: Setting | None, tokens: int, size: int, kept: bool) -> Crossover | None:
    ends = [1.0, MOST_PREEMPTIONS]
    if setting and kept:
        return crossover_preemptions(setting, tokens, size, MOST_PREEMPTIONS, kept)
    if setting:  # both grow as their number
        costs = [(at, setting.swap(tokens, size, at), setting.recompute(tokens, at)) for at in ends]
        return crossover_measured(costs, "preemptions")
    point = basis.point(tokens, size)
    if point is None or point.swap_in is None or point.swap_out is None:
        return None
    curves = _over_preemptions(thin(point.swap_out), thin(point.swap_in), thin(point.recompute), kept)
    return crossover(curves, "preemptions", 1, MOST_PREEMPTIONS)


def _over_preemptions(out: Estimate, back: Estimate, recompute: Estimate, kept: bool) -> Curves:
    """One write (k of them, where the host copy is freed) and k reads, against k recomputes."""
    return lambda count: (back * count + out * (1 if kept else count), recompute * count)


def _recompute(basis: Basis, tokens: int) -> Estimate | None:
    panel = next((panel for panel in basis.panels if panel.seq_len == tokens), None)
    return panel.points[0].recompute if panel else None


def _over(number: float, estimate: Estimate) -> Estimate:
    draws = None if estimate.draws is None else number / estimate.draws
    return Estimate(number / estimate.value, draws)


def _rate(needed: Estimate) -> Crossover:
    at = Crossing(needed.value, "recompute", "swap", needed.interval)
    return Crossover("GB/s a direction", needed.value, needed.value, (at,), None)


def _between(costs: dict[int, tuple[Estimate, Estimate] | None], axis: str) -> Crossover | None:
    points = [(float(x), *pair) for x, pair in costs.items() if pair]
    return crossover_measured(points, axis) if len(points) > 1 else None


def _tie(question: str, basis: Basis, found: Crossover | None, trip: str, **at: Any) -> Tie:
    fixed = {"tokens": None, "block_size": None, "kept": None} | at
    return Tie(question, trip=trip, kind=basis.kind, text=in_words(found), found=found, **fixed)


def in_words(found: Crossover | None) -> str:
    """The faster one, the crossing with its interval, the faster one beyond it, and so on upwards."""
    if found is None:
        return "not measured at two places or more"
    if not found.crossings:
        return "equal everywhere" if found.always == "equal" else f"always {found.always}"
    parts = [found.crossings[0].cheaper_below]
    for crossing in found.crossings:
        parts += [place(crossing), crossing.cheaper_above]
    return " < ".join(parts)


def place(crossing: Crossing) -> str:
    """Where it lies, with its interval."""
    at = digits(crossing.at)
    if crossing.interval is None:
        return at
    low, high = map(digits, crossing.interval)
    return f"{at} [{'< ' if crossing.open_low else ''}{low} to {'> ' if crossing.open_high else ''}{high}]"


def _scaled(found: Crossover, factor: float, unit: str) -> Crossover:
    crossings = tuple(
        replace(
            crossing,
            at=crossing.at * factor,
            interval=None if crossing.interval is None else Interval(*(end * factor for end in crossing.interval)),
        )
        for crossing in found.crossings
    )
    return replace(found, axis=unit, low=found.low * factor, high=found.high * factor, crossings=crossings)


def _crossover_values(found: Crossover | None) -> dict[str, Any]:
    if found is None:
        return {"crossings": [], "always": None, "certainty": None, "notes": []}
    crossings = [
        {
            "at": crossing.at,
            "interval": None if crossing.interval is None else list(crossing.interval),
            "cheaper_below": crossing.cheaper_below,
            "cheaper_above": crossing.cheaper_above,
            "share": crossing.share,
        }
        for crossing in found.crossings
    ]
    facts = {"axis": found.axis, "low": found.low, "high": found.high, "always": found.always}
    return facts | {"crossings": crossings, "certainty": found.certainty, "notes": list(found.notes)}
