"""Machines put together from published rows: what a swap or a prefill takes there, each number with its origin.

Where a machine has a published curve of rate over fragment size, a swap is descriptors x time of one copy, read off
that curve linearly in log(size) and log(rate): published within the curve's sizes, modelled beyond them. Elsewhere it
is the machine's published link rate and the cost of a copy published for other machines: modelled. A prefill is a
published row of exactly that length, else a roofline: modelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import published as pub
from analysis.efficiencies import Efficiencies, derive, idle_link_rates
from analysis.predict import predict_recompute, predict_swap, with_link
from analysis.published_series import CopySeries
from kernels.shapes import Layout, ModelShape
from kernels.specs import GpuSpec

PUBLISHED, MODELLED = "published", "modelled"
LOOP = "cudaMemcpyAsync per block (DMA)"  # the published loop of one memcpy a fragment
DIRECTIONS = ("swap_in", "swap_out")
GB = 1e9


class Cost(NamedTuple):
    """Seconds, where they come from ("published" or "modelled"), and the source in a few words."""

    seconds: float
    origin: str
    source: str


class Site(NamedTuple):
    """Which published rows make one machine.

    `prefills` are (hardware, model, start of the method) in order of preference; `link` narrows the rows of link rates
    where one hardware name has several hosts.
    """

    title: str
    spec: str
    copies: str
    prefills: tuple[tuple[str, str, str], ...]
    link: str = ""


# DistServe's engine step for OPT-13B and vidur's kernels for Llama-3-8B are of an A100-80GB, the link rates of hosts
# with an A100-40GB: both boards have the same matrix rate (results/specs.toml).
_A100 = (("A100-80GB", "opt-13b", "distserve"), ("A100-80GB", "llama-3-8b", "sum of layer parts"))
SITES = (
    Site("A100-SXM4, cloud VM", "A100-SXM4-80GB", "A100-SXM4-40GB", _A100, "PCIe4 (cloud VM)"),
    Site("A100-PCIE, bare host", "A100-PCIE-80GB", "A100-PCIE-40GB", _A100),
    Site("H100-SXM5", "H100-SXM5-80GB", "H100-SXM5-80GB", (("H100-SXM5-80GB", "", "vllm 0.24.0"),)),
    Site("H200-SXM", "H200-SXM-141GB", "H200-SXM-141GB", (("H200-SXM-141GB", "", "vllm 0.24.0"),)),
)
MORE_SITES = (
    Site("GH200, NVLink-C2C", "GH200-96GB", "GH200-96GB", (), "NVLink-C2C local"),
    Site("B200-SXM", "B200-SXM-180GB", "B200-SXM-180GB", (("B200-SXM-180GB", "", "vllm 0.24.0"),)),
)


@dataclass(frozen=True, eq=False)
class Host:
    """One machine.

    Attributes
    ----------
    site : Site
        Its name and rows.
    gpu : GpuSpec
        Its data sheet.
    rates : dict
        Published bytes/s of one large copy by direction; empty where only the data sheet is known.
    curves : dict
        Published loop of small copies by direction; empty where there is none.
    prefills : tuple of PrefillSeries
        Published prefills; the first of a model counts.
    """

    site: Site
    gpu: GpuSpec
    rates: dict[str, float]
    curves: dict[str, CopySeries]
    prefills: tuple[pub.PrefillSeries, ...]
    efficiencies: Efficiencies

    @property
    def link_text(self) -> str:
        """Rates in and out, in GB/s, and whether they are published."""
        if self.curves:
            ends = [self.curves[direction].bytes_s[-1] / GB for direction in DIRECTIONS]
            return f"{ends[0]:.1f} in, {ends[1]:.1f} out GB/s at the largest copies"
        if self.rates:
            return f"link {self.rates['swap_in'] / GB:.1f} in, {self.rates['swap_out'] / GB:.1f} out GB/s (published)"
        share = self.efficiencies.link_share.value
        return f"{self.gpu.link}, {share:.2f} of nominal {self.gpu.link_bytes_s / GB:g} GB/s"

    def swap(self, shape: ModelShape, tokens: int, block_size: int, layout: Layout, direction: str) -> Cost:
        """One direction of a swap of `tokens` tokens of 16-bit KV cache, a memcpy a fragment."""
        fragment = shape.fragment_bytes(layout, block_size, "float16")
        copies = -(-tokens // block_size) * shape.fragments_per_block(layout)
        if direction in self.curves:
            seconds, inside = copy_seconds(self.curves[direction], fragment)
            return Cost(copies * seconds, PUBLISHED if inside else MODELLED, "memcpy by size, vLLM blog")
        gpu, known = self.gpu, self.efficiencies
        if direction in self.rates:
            gpu, known = with_link(gpu, "published link", self.rates[direction]), known.stated(link_share=1.0)
        predicted = predict_swap(shape, tokens, gpu, known, block_size=block_size, layout=layout, dtype="float16")
        return Cost(predicted.seconds, MODELLED, f"link rate + {known.per_copy_s.value * 1e6:.1f} us a copy")

    def recompute(self, model: str, shape: ModelShape, tokens: int) -> Cost:
        """A prefill of one sequence at 16 bits."""
        for series in self.prefills:
            if series.model == model and tokens in series.tokens:
                seconds = float(series.seconds[series.tokens == tokens][0])
                return Cost(seconds, PUBLISHED, series_text(series))
        predicted = predict_recompute(shape, tokens, self.gpu, self.efficiencies, dtype="float16")
        share = self.efficiencies.flops_share.value
        return Cost(predicted.seconds, MODELLED, f"roofline, {share:.2f} of peak")


def hosts(published: pd.DataFrame, sites: tuple[Site, ...] = SITES) -> list[Host]:
    """The machines of `sites`, from the frame of `load_published`."""
    efficiencies = derive(published)
    rates = idle_link_rates(published)
    return [_host(published, rates, site, efficiencies) for site in sites]


def _host(published: pd.DataFrame, rates: pd.DataFrame, site: Site, efficiencies: Efficiencies) -> Host:
    gpu = pub.find_spec(site.spec)
    if gpu is None:
        raise ValueError(f"no data sheet of {site.spec} in results/specs.toml")
    mine = rates[(rates["hardware"] == site.copies) & (rates["link"] == (site.link or rates["link"]))]
    curves = {s.direction: s for s in pub.copy_series(published) if (s.hardware, s.method) == (site.copies, LOOP)}
    return Host(
        site,
        gpu,
        {str(direction): float(rows["value"].median()) for direction, rows in mine.groupby("direction")},
        curves,
        _prefills(published, site),
        efficiencies,
    )


def _prefills(published: pd.DataFrame, site: Site) -> tuple[pub.PrefillSeries, ...]:
    known = pub.prefill_series(published, kind="prefill_total_s")
    return tuple(
        series
        for hardware, model, method in site.prefills
        for series in known
        if series.hardware == hardware and model in ("", series.model) and series.method.startswith(method)
    )


def copy_seconds(curve: CopySeries, fragment_bytes: float) -> tuple[float, bool]:
    """Seconds of one copy in a loop, and whether the size is within the curve's sizes.

    Between two sizes the rate is linear in log(size) and log(rate). A smaller copy takes as long as the smallest (its
    cost is submission), a larger one runs at the rate of the largest.
    """
    sizes, rates = curve.fragment_bytes, curve.bytes_s
    inside = bool(sizes[0] <= fragment_bytes <= sizes[-1])
    at = max(fragment_bytes, float(sizes[0]))
    rate = float(np.exp(np.interp(np.log(at), np.log(sizes), np.log(rates))))
    return at / rate, inside


def series_text(series: pub.PrefillSeries) -> str:
    """A published prefill in a few words: who, and what is in it."""
    if series.source.startswith("vLLM blog"):
        return "vLLM blog"
    who = series.source.split(" (")[0].split("@")[0].split("/")[-1].split(",")[0]
    if "engine step" in series.method:
        return f"{who}, {series.method.split(' ')[0]} engine step"
    return f"{who} {'kernels' if 'sum of' in series.method else series.method}"
