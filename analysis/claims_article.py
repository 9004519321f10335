"""The quantitative statements of the article "vLLM Preemption: When to Swap KV Cache vs. Recompute", one entry each.

`words` are short quotations or paraphrases. What the article repeats from the paper is in `claims_paper`.
"""

from __future__ import annotations

from dataclasses import replace

from analysis import claims_arithmetic as arithmetic
from analysis import claims_prefill as prefill
from analysis import claims_record as record
from analysis import claims_recoveries as recoveries
from analysis import claims_transfer as transfer
from analysis.claim_types import Claim, Need
from analysis.claims_blocks import COMPARABLE, converges, never_reverses, on_panels
from analysis.claims_published import farthest

SWAP_SECTION = "article, section on the cost of swap"
RECOMPUTE_SECTION = "article, section on recompute"
CONDITIONS = "article, section on when swap can win"
CEILINGS = {"model": ("llama-3-8b",), "method": ("contiguous",), "direction": ("swap_in", "swap_out")}
PANELS = (
    Need("sweep figure19 or quick", "swap", {"direction": ("swap_in", "swap_out")}, note="every block size"),
    Need("sweep figure19 or quick", "recompute"),
)
SHORT_LENGTHS = Need("sweep with seq_lens of 64 to 512", "recompute", {"seq_len": (64, 128, 256)}, ("seq_len",))

ARTICLE_CLAIMS = (
    Claim(
        id="kv-bytes-per-token",
        words="Llama-3 8B in BF16 needs 128 KB of KV cache a token",
        source=SWAP_SECTION,
        claimed="128",
        unit="KiB",
        test="2 x layers x KV heads x head size x bytes",
        on_record=arithmetic.kv_per_token,
    ),
    Claim(
        id="round-trip-34-ms",
        words="round trip of one 4K-token sequence is 34 ms on PCIe 4.0",
        source=SWAP_SECTION,
        claimed="34",
        unit="ms",
        test="one contiguous copy out and in of 4,096 tokens over PCIe 4.0 x16 (within 5 %)",
        needs=(Need("sweep quick", "swap", CEILINGS | {"seq_len": (4096,)}, note="on PCIe 4.0"),),
        on_record=transfer.transfer(4096, 2),
        on_machine=transfer.measured_transfer(4096, 2),
    ),
    Claim(
        id="one-way-34-ms-at-8k",
        words="a 34 ms one-way transfer at 8K tokens on PCIe 4.0",
        source=CONDITIONS,
        claimed="34",
        unit="ms",
        test="one contiguous copy in of 8,192 tokens over PCIe 4.0 x16 (within 5 %)",
        needs=(Need("sweep full", "swap", CEILINGS | {"seq_len": (8192,)}, note="on PCIe 4.0"),),
        on_record=transfer.transfer(8192, 1),
        on_machine=transfer.measured_transfer(8192, 1),
    ),
    Claim(
        id="small-copies-pay-fixed-cost",
        words="each transfer has a fixed overhead that weighs more the smaller it is",
        source=SWAP_SECTION,
        claimed="> 0",
        unit="us a copy",
        test="fit of time over descriptors and bytes, one copy method",
        needs=(Need("sweep quick", "swap", {"method": ("memcpy_loop",)}, ("block_size",)),),
        on_record=transfer.per_copy_cost,
        on_machine=transfer.measured_per_copy,
    ),
    Claim(
        id="fixed-cost-is-kernel-launch",
        words='the fixed overhead is a "kernel-launch overhead"',
        source=SWAP_SECTION,
        claimed="a kernel launch a copy",
        unit="",
        test="what a copy submits",
        on_record=transfer.no_kernel,
    ),
    Claim(
        id="ridge-156",
        words="the ridge point of an A100 SXM is roughly 156 FLOP/byte for BF16",
        source=RECOMPUTE_SECTION,
        claimed="156",
        unit="FLOP/byte",
        test="peak over memory bandwidth, of the data sheets and as measured (within 5 %)",
        needs=recoveries.PROBES,
        on_record=arithmetic.ridge_of_a100,
        on_machine=recoveries.measured_ridge,
    ),
    Claim(
        id="short-prefills-memory-bound",
        words="short-sequence prefills fall below the ridge and are bound by memory bandwidth",
        source=RECOMPUTE_SECTION,
        claimed="no length named",
        unit="tokens",
        test="FLOP per byte over the tokens of a batch; exponent of the time over tokens",
        needs=(replace(SHORT_LENGTHS, or_else=recoveries.RIDGE_PREFILLS),),
        on_record=prefill.published_shortness,
        on_machine=recoveries.measured_shortness,
    ),
    Claim(
        id="wall-clock-below-peak",
        words='short prefills: wall clock is "much shorter than peak FLOPs would suggest"',
        source=RECOMPUTE_SECTION,
        claimed="< 1",
        unit="time / (FLOP / peak)",
        test="time of prefills of up to 256 tokens over FLOP / peak of the data sheet",
        needs=(Need("sweep quick", "recompute", {"seq_len": (64, 128, 256)}),),
        on_record=prefill.published_sign,
        on_machine=prefill.measured_sign,
    ),
    Claim(
        id="marginal-cost-in-batch",
        words="adding a recomputed sequence to a prefill batch costs far less than alone",
        source=RECOMPUTE_SECTION,
        claimed=f"<= {prefill.FAR_SMALLER}",
        unit="marginal / alone",
        test="time of a batch with and without the sequence, over its time alone",
        needs=(recoveries.JOINS,),
        on_record=prefill.published_marginal,
        on_machine=recoveries.measured_marginal,
    ),
    Claim(
        id="swap-blocks-the-gpu",
        words="resuming by swap is a serial cost",
        source=RECOMPUTE_SECTION,
        claimed="no overlap",
        unit="",
        test="steps beside a swap in, against steps alone: what they lose for each second of swap",
        needs=(recoveries.BESIDE,),
        on_machine=recoveries.measured_serial,
    ),
    Claim(
        id="swap-takes-the-link",
        words="a swap consumes PCIe bandwidth exclusively for one sequence",
        source=RECOMPUTE_SECTION,
        claimed=f"< {transfer.DUPLEX}",
        unit="both directions / one",
        test="copies in both directions at once against one direction",
        needs=(Need("sweep quick, table [copy]", "copy", {"direction": ("both",)}),),
        on_record=transfer.both_directions,
        on_machine=transfer.measured_both,
    ),
    Claim(
        id="never-reverses",
        words='at large blocks the two converge "but never reverse"',
        source=RECOMPUTE_SECTION,
        claimed="<= 1",
        unit="recompute / swap in+out",
        test="the largest ratio over block sizes",
        needs=PANELS,
        on_record=record.at_most_everywhere(1.0),
        on_machine=on_panels(never_reverses),
    ),
    Claim(
        id="converge-at-large-blocks",
        words="at large block sizes the two methods converge",
        source=RECOMPUTE_SECTION,
        claimed=f"{COMPARABLE[0]} to {COMPARABLE[1]}",
        unit="recompute / swap in+out",
        test="the ratio at the largest block size, 128 tokens or more",
        needs=PANELS,
        on_record=record.by_blocks((256,), *COMPARABLE, farthest),
        on_machine=on_panels(converges),
    ),
    Claim(
        id="swap-can-win-at-8k",
        words="at 8K+ tokens swap can be faster than recompute",
        source=CONDITIONS,
        claimed="> 1",
        unit="recompute / swap in+out",
        test="the best way of swapping at 8,192 tokens or more",
        needs=(
            Need("sweep full", "swap", {"seq_len": (8192, 16384, 32768)}),
            Need("sweep full", "recompute", {"seq_len": (8192, 16384, 32768)}),
        ),
        on_record=transfer.published_long,
        on_machine=transfer.measured_long,
    ),
    Claim(
        id="quadratic-growth",
        words="attention FLOPs grow as the square of the length, so recompute grows quickly",
        source=CONDITIONS,
        claimed="attention dominates",
        unit="share of FLOPs",
        test=f"share of attention; exponent of the time over tokens ({prefill.QUADRATIC} or more: nearer the square)",
        needs=(Need("sweep full, table [recompute]", "recompute", {"seq_len": (8192, 16384, 32768)}),),
        on_record=prefill.published_growth,
        on_machine=prefill.measured_growth,
    ),
    Claim(
        id="three-preemptions",
        words="three preemptions: swap pays for one write and one read",
        source=CONDITIONS,
        claimed="1",
        unit="reads",
        test="counting what each resumption needs; time of three preemptions over that of one",
        needs=recoveries.AGAIN,
        on_record=arithmetic.three_preemptions,
        on_machine=recoveries.measured_preemptions,
    ),
    Claim(
        id="preemption-rate-thresholds",
        words="a few percent of preempted requests cost nothing; above 10 % batches need attention",
        source="article, section on production",
        claimed="10 %",
        unit="",
        test="goodput over the preemption rate in a serving engine",
        needs=(Need("a serving replay, not in the suite", "swap", note="request traces at several rates"),),
    ),
)
