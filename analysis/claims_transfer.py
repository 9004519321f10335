"""Claims about copies: transfer times at a link's rate, long sequences, both directions, the cost of one copy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from analysis import claims_arithmetic as arithmetic
from analysis import claims_published as record
from analysis import published as pub
from analysis.claim_types import Answer, Claim, Verdict, answer
from analysis.claims_arithmetic import MODEL, NEAR
from analysis.claims_blocks import within
from analysis.cost_model import CopyFit, fit_copies
from analysis.figure19 import Panel
from analysis.intervals import Estimate, Interval
from analysis.measured import Machine, seconds
from kernels import shapes

MS = 1e3
TRANSFER_MS = 34.0
LONG = 8192  # tokens: "8K+"
DUPLEX = 1.1  # both directions at once move at least so many times what one does: the link is not exclusive


def transfer(tokens: int, passes: int) -> Callable[[Claim, pd.DataFrame], list[Verdict]]:
    """34 ms: by arithmetic at the nominal rate, and at the rate of each published PCIe 4.0 link."""

    def judge(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
        found = arithmetic.nominal_transfer(claim, tokens, passes)
        nbytes = tokens * shapes.find(MODEL).kv_bytes_per_token(arithmetic.DTYPE)
        for name, hardware, rate_in, rate_out, source in record.large_copy_rates(published):
            if name != "A100":
                continue
            times = [nbytes / rate_in, nbytes / rate_out][:passes]
            found.append(_transfer(claim, Estimate(sum(times) * MS), hardware, f"published ({record.short(source)})"))
        return found

    return judge


def measured_transfer(tokens: int, passes: int) -> Callable[[Claim, Machine], list[Verdict]]:
    """34 ms against the ceiling, one contiguous copy, on a machine whose link is PCIe 4."""

    def judge(claim: Claim, machine: Machine) -> list[Verdict]:
        if machine.pcie_generation != 4:
            return [claim.not_tested("The claim is about PCIe 4.0, which this machine's link is not.", machine.name)]
        rows = machine.plain("swap")
        rows = rows[(rows["method"] == "contiguous") & (rows["model"] == MODEL) & (rows["seq_len"] == tokens)]
        rows = rows[(rows["batch"] == 1) & rows["dtype"].isin(["bfloat16", "float16"])]
        times = {str(d): seconds(cases) for d, cases in rows.groupby("direction")}
        if "swap_in" not in times or (passes == 2 and "swap_out" not in times):
            return []
        total = times["swap_in"] + times["swap_out"] if passes == 2 else times["swap_in"]
        return [_transfer(claim, total * MS, machine.name, f"measured ({machine.name})")]

    return judge


def _transfer(claim: Claim, found: Estimate, machine: str, origin: str) -> Verdict:
    holds = within(found, TRANSFER_MS * (1 - NEAR), TRANSFER_MS * (1 + NEAR))
    because = f"Large contiguous copies of as many bytes take {found.value:.1f} ms over this link."
    return claim.says(answer([holds]), because, found=found, origin=origin, machine=machine, where="one large copy")


def published_long(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
    """Whether swap wins anywhere at 8K tokens and more; "can" needs one case."""
    pairs = [pair for pair in record.large_copy_pairs(published, LONG) if pair.model == MODEL]
    pairs += record.served_pairs(published)
    return [
        record.judge_pairs(claim, group, [max(p.ratio for p in group) > 1] * len(group), "large copies", record.largest)
        for group in record.by_link(pairs)
    ]


def measured_long(claim: Claim, machine: Machine) -> list[Verdict]:
    """The best way of swapping at 8K tokens and more on this machine."""
    best: tuple[Panel, int, Estimate] | None = None
    for panel in machine.panels:
        for block_size, ratio in panel.pairs if panel.seq_len >= LONG else []:
            if best is None or ratio.value > best[2].value:
                best = panel, block_size, ratio
    if best is None:
        return []
    panel, block_size, ratio = best
    because = (
        f"Its largest recompute / swap in+out at {LONG:,} tokens and more is {ratio.value:.3g}, with {panel.method}, "
        f"{panel.layout} and {block_size} tokens a block."
    )
    where = f"{panel.model}, {panel.seq_len} tokens"
    outcome = answer([within(ratio, 1, np.inf)])
    return [
        claim.says(
            outcome, because, found=ratio, origin=f"measured ({machine.name})", machine=machine.name, where=where
        )
    ]


def both_directions(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
    """Rate of both directions at once over the better one alone, where one source gives both."""
    rates = published[published["quantity"] == "rate_bytes_s"]
    found = []
    for (hardware, source, method), rows in rates.groupby(["hardware", "source", "method"]):
        size = rows.loc[rows["direction"] == "both", "x"]
        rows = rows[rows["x"].isin(size)] if size.notna().any() else rows
        by = {str(d): float(group["value"].max()) for d, group in rows.groupby("direction")}
        alone = max((by[d] for d in ("swap_in", "swap_out") if d in by), default=None)
        # nvbandwidth's bidirectional figure is of one direction while the other runs; both are taken as equal.
        together = by.get("both") or 2 * by.get("swap_in_during_swap_out", 0)
        if alone and together:
            origin = f"published ({record.short(str(source))})"
            found.append(_duplex(claim, Estimate(together / alone), str(hardware), origin, str(method)))
    return found


def measured_both(claim: Claim, machine: Machine) -> list[Verdict]:
    """The largest copy of each method: time of the better direction alone over time of half of it each way at once."""
    found = []
    for method, rows in machine.copies.groupby("method"):
        rows = rows[rows["bytes"] == rows.loc[rows["direction"] == "both", "bytes"].max()]
        times = {str(d): seconds(cases) for d, cases in rows.groupby("direction")}
        if {"both", "swap_in", "swap_out"} <= times.keys():
            alone = min((times["swap_in"], times["swap_out"]), key=lambda time: time.value)
            origin = f"measured ({machine.name})"
            found.append(_duplex(claim, alone / times["both"], machine.name, origin, str(method)))
    return found


def _duplex(claim: Claim, gain: Estimate, machine: str, origin: str, method: str) -> Verdict:
    """CONFIRMED if the other direction gains nothing; otherwise it depends on the direction of the other copy."""
    exclusive = within(gain, 0, DUPLEX)
    because = f"Both directions at once move {gain.value:.2f} times what one does alone"
    because += "." if exclusive else ": copies the other way go on, copies the same way must share."
    verdict = Answer.CONFIRMED if exclusive else Answer.DEPENDS
    where = f"{method}; direction of the other copy"
    return claim.says(verdict, because, found=gain, origin=origin, machine=machine, where=where)


def per_copy_cost(claim: Claim, published: pd.DataFrame) -> list[Verdict]:
    """Seconds a small copy takes whatever its size, by machine."""
    found = []
    for (hardware, source), rows in pub.per_copy_costs(published).groupby(["hardware", "source"]):
        rows = rows.sort_values("x")
        us, kib = rows["value"] * 1e6, rows["x"] / 1024
        because = f"Copies of {kib.iloc[0]:g} KiB take {us.iloc[0]:.3g} us each"
        if len(rows) > 1:
            because += f", copies of {kib.iloc[-1]:g} KiB {us.iloc[-1]:.3g} us"
        ends = Interval(float(us.min()), float(us.max()))
        origin = f"published ({record.short(str(source))})"
        where = "loop of cudaMemcpyAsync"
        found.append(
            claim.says(
                Answer.CONFIRMED,
                f"{because}.",
                found=float(us.median()),
                interval=ends,
                origin=origin,
                machine=str(hardware),
                where=where,
            )
        )
    return found


def measured_per_copy(claim: Claim, machine: Machine) -> list[Verdict]:
    """The fitted cost of a descriptor of memcpy_loop, by layout and direction."""
    found = []
    rows = machine.frame[machine.frame["method"] == "memcpy_loop"]
    for key, fit in fit_copies(rows).items():
        found.append(_fitted(claim, fit, machine, f"{key.layout}, {key.placement}, {key.direction}"))
    return found


def _fitted(claim: Claim, fit: CopyFit, machine: Machine, where: str) -> Verdict:
    if fit.refusal:
        return claim.not_tested(f"The fit over descriptors and bytes is refused: {fit.refusal}.", machine.name)
    name = "issue_per_copy_s" if fit.issue_per_copy_s > fit.per_copy_s else "per_copy_s"
    us, ends = getattr(fit, name) * 1e6, fit.intervals.get(name)
    interval = Interval(ends.low * 1e6, ends.high * 1e6) if ends else None
    verdict = Answer.CONFIRMED if us > 0 and (interval is None or interval.low > 0) else Answer.REFUTED
    side = "on the host, which submits it" if name.startswith("issue") else "on the device"
    because = f"A descriptor costs {us:.3g} us beside its bytes, {side}."
    return claim.says(
        verdict,
        because,
        found=us,
        interval=interval,
        origin=f"measured ({machine.name})",
        machine=machine.name,
        where=where,
    )


def no_kernel(claim: Claim, _: pd.DataFrame) -> list[Verdict]:
    """What a copy submits: a fact of the interface, not a measurement."""
    because = (
        "A fixed cost exists, yet cudaMemcpyAsync between pinned host and device memory launches no kernel: the driver "
        "submits work to a copy engine; copy kernels are another method, one launch for many fragments."
    )
    origin = "published (CUDA programming guide; vLLM blog 2026-01-08, which measures both)"
    return [claim.says(Answer.REFUTED, because, origin=origin, where="one memcpy a fragment")]
