"""Claims about recompute: growth over the length, short prefills, batches, block sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis import claims_arithmetic as arithmetic
from analysis import claims_published as record
from analysis import published as pub
from analysis.claim_types import Answer, Claim, Verdict, answer
from analysis.claims_arithmetic import MODEL
from analysis.claims_blocks import within
from analysis.efficiencies import shape_and_spec
from analysis.intervals import Estimate, Interval
from analysis.measured import Curve, Machine, seconds
from kernels import shapes

QUADRATIC = 1.5  # local exponent of time over tokens from which growth is nearer to the square than to the line
FLAT = 0.5  # exponent below which time hardly depends on the tokens: bound by the weights' bytes
SHORT = 256  # tokens: what "short" may mean at most
LONG = 8192  # tokens: "8K+"
FAR_SMALLER = 0.5  # marginal / alone
SAME = 0.1  # block sizes change recompute by at most 10 %
Step = tuple[int, int, Estimate]  # from, to (tokens), exponent of the time over the tokens


def published_growth(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
    """Arithmetic shares of attention, and the exponent between the two longest published prefills of each series."""
    found = arithmetic.attention_shares(claim, published)
    for series in pub.prefill_series(published, model=MODEL):
        steps = [step for step in record.exponents(series.tokens, series.seconds) if step[1] >= LONG]
        if steps:
            origin = f"published ({record.short(series.source)})"
            found.append(_growth(claim, [(a, b, Estimate(e)) for a, b, e in steps], series.hardware, origin))
    return found


def measured_growth(claim: Claim, machine: Machine) -> list[Verdict]:
    """The exponents of a machine's own recompute times up to 8K tokens and beyond."""
    found = []
    for curve in machine.curves:
        steps = [step for step in steps_of(curve) if step[1] >= LONG]
        if steps and curve.batch == 1:
            found.append(_growth(claim, steps, machine.name, f"measured ({machine.name})", curve.model))
    return found


def steps_of(curve: Curve) -> list[Step]:
    """The local exponent of the time between neighbouring lengths."""
    return [(a, b, _exponent(a, b, at_a, at_b)) for (a, at_a), (b, at_b) in pairwise(curve.points)]


def _exponent(a: int, b: int, at_a: Estimate, at_b: Estimate) -> Estimate:
    ratio = at_b / at_a
    draws = None if ratio.draws is None else np.log(ratio.draws) / np.log(b / a)
    return Estimate(float(np.log(ratio.value) / np.log(b / a)), draws)


def _growth(claim: Claim, steps: Sequence[Step], machine: str, origin: str, model: str = MODEL) -> Verdict:
    outcomes = [within(exponent, QUADRATIC, np.inf) for _, _, exponent in steps]
    a, b, last = steps[-1]
    from_ = next((start for (start, _, _), holds in zip(steps, outcomes, strict=True) if holds), None)
    turn = f", and is {QUADRATIC} or more from {from_:,} tokens on" if from_ else f", below {QUADRATIC} throughout"
    verdict = answer(outcomes)
    if verdict is Answer.REFUTED and b < (half := arithmetic.attention_is_half(shapes.find(MODEL))):
        verdict = Answer.DEPENDS  # nothing was measured where attention is the larger half
        turn += f"; attention is half of Llama-3-8B's FLOPs from about {half:,} tokens"
    because = f"The time grows with tokens to the power {last.value:.2f} from {a:,} to {b:,} tokens{turn}."
    where = f"{model}, {steps[0][0]} to {b} tokens"
    return claim.says(
        verdict, because, found=last, unit="exponent", origin=origin, machine=machine, where=where, claimed="2"
    )


def published_shortness(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
    """Arithmetic, and the number of tokens from which published times follow the tokens."""
    found = arithmetic.short_prefills(claim, published)
    for series in pub.prefill_series(published, model=MODEL, kind="prefill_total_s"):
        steps = [(a, b, Estimate(e)) for a, b, e in record.exponents(series.tokens, series.seconds)]
        origin = f"published ({record.short(series.source)})"
        found += [verdict] if (verdict := shortness(claim, steps, series.hardware, origin)) else []
    return found


def measured_shortness(claim: Claim, machine: Machine) -> list[Verdict]:
    """The same on a machine's own recompute times."""
    origin = f"measured ({machine.name})"
    judged = [shortness(claim, steps_of(curve), machine.name, origin) for curve in machine.curves if curve.batch == 1]
    return [verdict for verdict in judged if verdict]


def shortness(claim: Claim, steps: Sequence[Step], machine: str, origin: str) -> Verdict | None:
    """DEPENDS where times are flat up to some length and follow the tokens above it; None without lengths up to 256."""
    if not steps or steps[0][1] > SHORT:
        return None
    flat = [b for _, b, exponent in steps if exponent.value < FLAT]
    upper = max(flat, default=0)
    if not flat:
        verdict, because = Answer.REFUTED, f"Times follow the tokens from {steps[0][0]} tokens on."
    elif len(flat) == len(steps):
        verdict, because = Answer.CONFIRMED, f"Times hardly depend on the tokens up to {upper}, the longest here."
    else:
        verdict = Answer.DEPENDS
        because = f"It depends on the tokens: times are nearly flat up to about {upper}, and follow the tokens above."
    where = f"{steps[0][0]} to {steps[-1][1]} tokens, exponent below {FLAT} taken as flat"
    return claim.says(verdict, because, found=upper, origin=origin, machine=machine, where=where)


def published_sign(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
    """Arithmetic, and published times of short prefills over FLOP / peak."""
    found = arithmetic.roofline_sign(claim, published)
    for series in pub.prefill_series(published, model=MODEL, kind="prefill_total_s"):
        known = shape_and_spec(series.model, series.hardware)
        points = [(int(n), s) for n, s in zip(series.tokens, series.seconds, strict=True) if n <= SHORT]
        if known and points:
            peak = known[1].bf16_flops
            ratios = [(n, Estimate(float(s) / (known[0].prefill_flops(n) / peak))) for n, s in points]
            found.append(_sign(claim, ratios, series.hardware, f"published ({record.short(series.source)})"))
    return found


def measured_sign(claim: Claim, machine: Machine) -> list[Verdict]:
    """Measured times of short prefills over FLOP / peak."""
    found, spec = [], machine.spec
    for curve in machine.curves:
        points = [(n, s) for n, s in curve.points if n <= SHORT]
        if spec is None or not points or curve.model not in shapes.SHAPES:
            continue
        shape = shapes.find(curve.model)
        ratios = [(n, s * (spec.bf16_flops / (curve.batch * shape.prefill_flops(n)))) for n, s in points]
        found.append(_sign(claim, ratios, machine.name, f"measured ({machine.name})"))
    return found


def _sign(claim: Claim, ratios: Sequence[tuple[int, Estimate]], machine: str, origin: str) -> Verdict:
    tokens, least = min(ratios, key=lambda pair: pair[1].value)
    outcomes = [within(ratio, 0, 1) for _, ratio in ratios]
    because = f"Prefills of up to {SHORT} tokens take at least {least.value:.2f} times FLOP / peak ({tokens} tokens)."
    where = f"{ratios[0][0]} to {ratios[-1][0]} tokens"
    return claim.says(answer(outcomes), because, found=least, origin=origin, machine=machine, where=where)


def published_marginal(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
    """(T(2 n) - T(n)) / T(n) of published linear layers: n tokens joining a batch of n, which are packed together."""
    found = []
    rows = published[(published["quantity"] == "prefill_linear_s") & (published["model"] == MODEL)]
    for (hardware, source), group in rows.groupby(["hardware", "source"]):
        times = dict(zip(group["x"].astype(int), group["value"], strict=True))
        shares = {n: times[2 * n] / times[n] - 1 for n in sorted(times) if 2 * n in times}
        outcomes: list[bool | None] = [share <= FAR_SMALLER for share in shares.values()]
        small = [n for n, share in shares.items() if share <= FAR_SMALLER]
        ends = Interval(min(shares.values()), max(shares.values()))
        turn = f"half or less of a prefill alone only up to {max(small)} tokens" if small else "never half or less"
        because = f"n tokens joining n others cost {ends.low:.2f} to {ends.high:.2f} of what they cost alone: {turn}."
        source = record.short(str(source))
        found.append(
            claim.says(
                answer(outcomes),
                because,
                found=ends.high,
                interval=ends,
                origin=f"published ({source})",
                machine=str(hardware),
                where=f"linear layers, n from {min(shares)} to {max(shares)} tokens",
            )
        )
    return found


def recompute_over_blocks(claim: Claim, machine: Machine) -> list[Verdict]:
    """Largest over smallest recompute time over block sizes of one model and length, where rows name a block size."""
    rows = machine.rows[(machine.rows["recovery"] == "recompute") & machine.rows["block_size"].notna()]
    found = []
    for (model, dtype, seq_len, batch), group in rows.groupby(["model", "dtype", "seq_len", "batch"]):
        times = [seconds(cases) for _, cases in group.groupby("block_size")]
        if len(times) < 2:
            continue
        ordered = sorted(times, key=lambda time: time.value)
        ratio = ordered[-1] / ordered[0]
        because = f"Over {len(times)} block sizes recompute differs by a factor of {ratio.value:.3g} at most."
        where = f"{model}, {dtype}, {seq_len} tokens x {batch}"
        outcome = answer([within(ratio, 0, 1 + SAME)])
        origin = f"measured ({machine.name})"
        found.append(claim.says(outcome, because, found=ratio, origin=origin, machine=machine.name, where=where))
    return found
