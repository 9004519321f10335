"""Claims about block sizes, judged on panels: what a machine measured at each block size.

Each panel (one model, length, way of swapping) holds, fails, or is undecided where the interval spans the limit. Panels
that disagree make the answer DEPENDS, with the axes that separate them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.claim_types import Answer, Claim, Verdict, answer
from analysis.figure19 import Panel
from analysis.intervals import Estimate, Interval
from analysis.measured import Machine
from analysis.paper import readings

AXES = ("model", "seq_len", "batch", "dtype", "layout", "method", "placement")
# What the paper's artifact measured (sosp-ae-astra, benchmark_swap.py and benchmark_recomp.py).
PAPER_CASE = {"model": "opt-13b", "seq_len": 256, "batch": 1, "layout": "layer_split", "method": "memcpy_loop"}
SMALL, LARGE, MEDIUM = (1, 2), 128, (16, 64)  # block sizes in tokens
COMPARABLE = (0.8, 1.25)  # recompute / swap within a quarter of each other, either way
WIDE_MARGIN = 0.5  # recompute takes at most half of the time
COLLAPSE = 0.5  # at most half of the rate that large copies reach


@dataclass(frozen=True, eq=False)
class Tested:
    """One panel's outcome (None: undecided), the number it rests on, and how far that is on the failing side."""

    holds: bool | None
    found: Estimate
    block_size: int
    failing: float


Test = Callable[[Panel], Tested | None]


def within(found: Estimate, low: float, high: float) -> bool | None:
    """Whether the interval (the value, where there is none) lies in low..high; None if it spans an end."""
    ends = found.interval or Interval(found.value, found.value)
    if ends.high < low or ends.low > high:
        return False
    return True if low <= ends.low and ends.high <= high else None


def twenty_percent(name: str, factor: float) -> Test:
    """Reading `name` of the paper's sentence with recompute times `factor`, as `analysis.paper` has it."""

    def test(panel: Panel) -> Tested:
        reading = next(r for r in readings(panel) if (r.name, r.factor) == (name, factor))
        holds = reading.holds if reading.clear else None
        return Tested(holds, reading.largest, reading.block_size, reading.largest.value - reading.limit)

    return test


def never_reverses(panel: Panel) -> Tested:
    """Recompute takes no longer than swap in+out at any block size."""
    size, ratio = max(panel.pairs, key=lambda pair: pair[1].value)
    return Tested(within(ratio, 0, 1), ratio, size, ratio.value)


def wins_at_small(panel: Panel) -> Tested | None:
    """At 1 or 2 tokens a block recompute takes at most half as long."""
    pairs = [pair for pair in panel.pairs if pair[0] in SMALL]
    if not pairs:
        return None
    size, ratio = pairs[0]
    return Tested(within(ratio, 0, WIDE_MARGIN), ratio, size, ratio.value)


def swap_wins_at_large(panel: Panel) -> Tested | None:
    """At the largest block, of 128 tokens or more, swap is faster."""
    size, ratio = panel.pairs[-1]
    return None if size < LARGE else Tested(within(ratio, 1, np.inf), ratio, size, -ratio.value)


def converges(panel: Panel) -> Tested | None:
    """At the largest block, of 128 tokens or more, the two are comparable."""
    size, ratio = panel.pairs[-1]
    return None if size < LARGE else Tested(within(ratio, *COMPARABLE), ratio, size, abs(np.log(ratio.value)))


def comparable_at_medium(panel: Panel) -> Tested | None:
    """At every block size measured from 16 to 64 tokens the two are comparable."""
    pairs = [pair for pair in panel.pairs if MEDIUM[0] <= pair[0] <= MEDIUM[1]]
    if not pairs:
        return None
    outcomes = [within(ratio, *COMPARABLE) for _, ratio in pairs]
    holds = False if False in outcomes else None if None in outcomes else True
    size, ratio = max(pairs, key=lambda pair: abs(np.log(pair[1].value)))
    return Tested(holds, ratio, size, abs(np.log(ratio.value)))


def collapses(panel: Panel) -> Tested | None:
    """Swap in+out at 1 or 2 tokens a block takes at least twice as long as at 128 or more."""
    points = [point for point in panel.points if point.swap_in_out is not None]
    small, large = points[0], points[-1]
    if small.block_size not in SMALL or large.block_size < LARGE or not (small.swap_in_out and large.swap_in_out):
        return None
    share = large.swap_in_out / small.swap_in_out
    return Tested(within(share, 0, COLLAPSE), share, small.block_size, share.value)


def on_panels(test: Test, paper: bool = False) -> Callable[[Claim, Machine], list[Verdict]]:
    """Judge by a machine's panels; where the paper says it, its own case and everything else are judged apart."""

    def judge(claim: Claim, machine: Machine) -> list[Verdict]:
        if not machine.panels:
            return [claim.not_tested(f"No swap and recompute rows to pair: {machine.no_panels}.", machine.name)]
        own = [panel for panel in machine.panels if paper and _is_paper_case(panel)]
        others = [panel for panel in machine.panels if panel not in own]
        found = [v for group in (own, others) if (v := _judge(claim, machine, test, group))]
        if paper and not own:
            axes = ", ".join(f"{axis}={value}" for axis, value in PAPER_CASE.items())
            missing = f"The paper's own case is missing: swap and recompute [{axes}] of sweep figure19."
            found.append(claim.not_tested(missing, machine.name))
        return found

    return judge


def _is_paper_case(panel: Panel) -> bool:
    return all(getattr(panel, axis) == value for axis, value in PAPER_CASE.items())


def _judge(claim: Claim, machine: Machine, test: Test, panels: Sequence[Panel]) -> Verdict | None:
    tested = [(panel, outcome) for panel in panels if (outcome := test(panel)) is not None]
    if not tested:
        return None
    verdict = answer([outcome.holds for _, outcome in tested])
    panel, worst = max(tested, key=lambda pair: pair[1].failing)
    at = f"{worst.found.value:.3g} at {worst.block_size} tokens a block ({_case(panel)})"
    suspect = " Some of these rows are suspect." if any(p.suspect for p, _ in tested) else ""
    all_ = f"all {len(tested)} comparisons" if len(tested) > 1 else "the one comparison"
    words = {
        Answer.CONFIRMED: f"It holds in {all_}; the nearest to failing is {at}.",
        Answer.REFUTED: f"It fails in {all_}; the one that fails most is {at}.",
        Answer.DEPENDS: f"It depends {_on(tested)}; the one that fails most is {at}.",
    }
    return claim.says(
        verdict,
        words[verdict] + suspect,
        found=worst.found,
        origin=f"measured ({machine.name})",
        machine=machine.name,
        where=_where([panel for panel, _ in tested]),
    )


def _case(panel: Panel) -> str:
    return ", ".join(str(getattr(panel, axis)) for axis in ("model", "seq_len", "layout", "method", "placement"))


def _where(panels: Sequence[Panel]) -> str:
    parts = ["|".join(dict.fromkeys(str(getattr(panel, axis)) for panel in panels)) for axis in AXES]
    return ", ".join(f"{axis} {values}" for axis, values in zip(AXES, parts, strict=True))


def _on(tested: Sequence[tuple[Panel, Tested]]) -> str:
    """The axes whose values separate what holds from what does not, else the counts."""
    decided = [(panel, outcome.holds) for panel, outcome in tested if outcome.holds is not None]
    undecided = len(tested) - len(decided)
    spans = f"the interval of {undecided} of {len(tested)} comparisons spans the limit" if undecided else ""
    if len({holds for _, holds in decided}) < 2:
        return f"on more rounds: {spans}"
    separating = [text for axis in AXES if (text := _separates(axis, decided))]
    held = [_case(panel) for panel, holds in decided if holds]
    on = "on " + " or ".join(separating) if separating else f"on the case: it holds for {'; '.join(held[:3])}"
    return f"{on}; it holds in {len(held)} of {len(tested)} comparisons" + (f"; {spans}" if spans else "")


def _separates(axis: str, decided: Iterable[tuple[Panel, bool]]) -> str:
    sides: dict[bool, list[str]] = {True: [], False: []}
    for panel, holds in decided:
        sides[holds].append(str(getattr(panel, axis)))
    if set(sides[True]) & set(sides[False]):
        return ""
    return (
        f"{axis} (holds for {', '.join(dict.fromkeys(sides[True]))}; not for {', '.join(dict.fromkeys(sides[False]))})"
    )
