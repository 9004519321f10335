"""Result rows: what a case leaves in the JSON, as `results/schema.json` says, and its line on the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.cases import Case
from bench.measure import Measurement
from kernels.copy_plan import CopyPlan

SCHEMA = 1
ISSUE_SHARE, ISSUE_FROM = 0.1, 512  # of the device's time, from so many tokens: past it a round times the host


@dataclass(frozen=True)
class Work:
    """What a case does, independent of how fast."""

    bytes: int | None = None
    descriptors: int | None = None
    fragment_bytes: int | None = None
    descriptors_merged: int | None = None
    flops: int | None = None

    @classmethod
    def of_plans(cls, *plans: CopyPlan) -> Work:
        """The work of a swap, or of several at once: bytes and descriptors of all of them."""
        return cls(
            sum(plan.nbytes for plan in plans),
            sum(plan.descriptors for plan in plans),
            plans[0].fragment_bytes,
            sum(plan.merged().descriptors for plan in plans),
        )


def row(
    case: Case,
    work: Work,
    measured: Measurement,
    *,
    prepare_s: float,
    verified: bool,
    suspect: list[str],
    session: str,
    order: int,
    detail: dict[str, Any],
) -> dict[str, Any]:
    """The `extra_info` of one benchmark: plain values only, since pytest-benchmark turns others into strings."""
    return {
        "schema": SCHEMA,
        "case": case.as_dict(),
        "work": {name: getattr(work, name) for name in Work.__dataclass_fields__},
        "clocks": measured.clocks.as_dict(),
        "baseline": measured.baseline and measured.baseline.as_dict(),
        "prepare_s": prepare_s,
        "verified": verified,
        "suspect": measured.suspect + suspect,
        "session": session,
        "order": order,
        "detail": detail,
    }


def line(extra_info: dict[str, Any], runs_at_once: bool = True) -> str:
    """What was timed, how long it took, how fast that is, and against what.

    `runs_at_once` is the device's: where it holds, issuing is running and takes all the time there is.
    """
    wall_s = median(extra_info["clocks"]["wall_s"])
    work, detail, baseline = extra_info["work"], extra_info["detail"], extra_info["baseline"]
    if baseline:
        pairs = zip(extra_info["clocks"]["wall_s"], baseline["wall_s"], strict=True)
        rate = f"{median(with_it - without for with_it, without in pairs) * 1e3:+9.3f} ms     "
        share = f"over {median(baseline['wall_s']) * 1e3:.3f} ms without"
    elif extra_info["case"]["probe"] == "memory":
        rate, share = f"{2 * extra_info['case']['memory_bytes'] / wall_s / 1e9:9.2f} GB/s   ", "read and written"
    elif work["flops"] and not work["bytes"]:
        rate = f"{work['flops'] / wall_s / 1e12:9.3f} TFLOP/s"
        share = "" if detail.get("mfu") is None else f"{detail['mfu']:6.1%} MFU"
    else:
        gbps, ceiling = work["bytes"] / wall_s / 1e9, detail.get("ceiling_gbps")
        rate = f"{gbps:9.2f} GB/s   "
        share = "" if ceiling is None else f"{gbps / ceiling:6.1%} of the ceiling"
    note = "" if runs_at_once else _late_issue(extra_info)
    return f"{title(extra_info['case'])} {wall_s * 1e3:11.3f} ms {rate} {share}".rstrip() + note


def _late_issue(extra_info: dict[str, Any]) -> str:
    """A note on a prefill that waits for the host: a graph should have kept it from that."""
    case, clocks = extra_info["case"], extra_info["clocks"]
    computed = (case["seq_len"] or 0) - (case["cached_tokens"] or 0)
    late = median(clocks["issue_s"]) / median(clocks["device_s"])
    if case["recovery"] not in ("recompute", "ridge") or computed < ISSUE_FROM or late <= ISSUE_SHARE:
        return ""
    return f"  issuing takes {late:.0%} of the device's time"


def title(case: dict[str, Any]) -> str:
    """The case in words, in columns."""
    what = case["direction"] or case["recovery"]
    if case["recovery"] == "copy":
        again = " again" if case["repeat"] else ""
        size = f"{case['fragments']:,} x {case['fragment_bytes']:,} B{again}"
        return f"copy {what:9} {case['method']:20} {case['placement'] or '':10} {size:28}"
    block = "" if case["block_size"] is None else f"block {case['block_size']}"
    model = case["model"] or ""
    if case["layers_timed"] != case["layers_model"]:
        model += f" ({case['layers_timed']} of {case['layers_model']} layers)"
    where = " ".join(part for part in (case["layout"], case["placement"]) if part)
    tokens = f"{case['seq_len']:,} tokens" if case["seq_len"] else ""
    asked = " ".join(Case(**case).question)
    if what != case["recovery"]:
        asked = " ".join(part for part in (case["recovery"], asked) if case["recovery"] != "swap")
    return f"{what:9} {case['method'] or '':20} {where:22} {block:9} {tokens:>13} {model:10} {asked}".rstrip()
