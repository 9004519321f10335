"""Figures of costs against planted machines: what is drawn, where it comes from, and that nothing overlaps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure

from analysis.contract import NothingToDraw
from analysis.crossover import crossover_block_size
from analysis.figures import save
from analysis.figures_cost import draw_crossover_map, draw_generations, draw_rates, draw_recompute
from analysis.figures_map import BEYOND, crossover_map, ratio_text
from analysis.figures_rates import measured_rates, published_curves
from analysis.load import load
from analysis.published import load_published
from kernels.shapes import find
from kernels.specs import find as find_spec
from tests.analysis import planted
from tests.analysis.pictures import legend_of, lines_of, overlaps

CPU_FILE = Path(__file__).parents[2] / "results" / "cpu-epyc-2-cores.json"
GPU = "NVIDIA A100-SXM4-40GB"
EXACT = planted.Machine(noise=0)


@cache
def published() -> pd.DataFrame:
    return load_published()


def frame(machine: planted.Machine = EXACT, suspect: str = "") -> pd.DataFrame:
    """Two lengths of both layouts; `suspect` names a recovery whose first row is."""
    lengths, blocks = (1024, 4096), (16, 64)
    joined = dataclasses.replace(machine, layout="cross_layer")
    parts = [planted.frame(one, 0, lengths, blocks, 3, recompute=one is machine) for one in (machine, joined)]
    found = pd.concat(parts, ignore_index=True)
    if suspect:
        found.at[found[found["recovery"] == suspect].index[0], "suspect"] = ["clocks held down"]
    return found


@cache
def cpu() -> pd.DataFrame:
    return load(CPU_FILE)


def values(figure: Figure, name: str) -> dict[float, float]:
    """y by x of the first line of that name."""
    line = lines_of(figure, name)[0]
    return dict(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True))  # type: ignore[arg-type]


def test_the_map_agrees_with_costs_and_crossings() -> None:
    setting = planted.setting(0)
    found = crossover_map(setting, (256, 8192), (1, 256))
    row, column = 16, 8  # 16 tokens a block, 1024 tokens
    tokens, block_size = found.lengths[column], found.block_sizes[row]
    assert (tokens, block_size) == (pytest.approx(1024), pytest.approx(16))
    expected = np.log2(setting.recompute(tokens).value / setting.swap(tokens, block_size).value)
    assert found.ratio[row, column] == pytest.approx(expected)
    assert found.low is not None
    assert found.high is not None
    assert (found.low <= found.ratio + 0.02).all()
    assert (found.high >= found.ratio - 0.02).all()
    assert found.beyond[0].all()
    assert not found.beyond[row, column]
    figure = draw_crossover_map(setting, GPU, lengths=(256, 8192))
    (tie,) = [c for c in figure.axes[0].collections if isinstance(c, ContourSet) and list(c.levels) == [0]]
    at = tie.get_paths()[0].vertices
    (crossing,) = crossover_block_size(setting, 2048).crossings
    nearest = np.asarray(at)[np.abs(np.log(np.asarray(at)[:, 0] / 2048)).argmin()]
    assert nearest[1] == pytest.approx(crossing.at, rel=0.1)


def test_a_map_reads_in_black_and_white() -> None:
    setting = planted.setting(0)
    load_only = dataclasses.replace(setting, swap_out=None)
    refused = dataclasses.replace(setting, prefill=dataclasses.replace(setting.prefill, refusal="misses by 41 %"))
    maps = {"memcpy_loop": setting, "memcpy_batch": load_only, "torch_copy": refused}
    figure = draw_crossover_map(maps, GPU, backend="cpu")
    texts = [[text.get_text() for text in ax.texts] for ax in figure.axes[:3]]
    assert {"recompute 2x", "recompute 4x"} <= set(texts[0])
    assert "swap 2x" in texts[1]
    assert texts[2][0] == "no map: misses by 41 %"
    assert all("CPU" in shown for shown in texts)
    assert legend_of(figure) == ["tie", "95 % band of the tie", str(BEYOND.get_label())]
    titles = [ax.get_title() for ax in figure.axes[:3]]
    assert all(GPU in title and "llama-3-8b, float16" in title for title in titles)
    assert "memcpy_loop, layer_split, round trip" in titles[0]
    assert "load only" in titles[1]
    assert "both fitted to measured rows" in titles[0]
    assert ratio_text(-3) == "recompute 8x"
    assert overlaps(figure) == []


def test_one_that_always_wins_is_named() -> None:
    setting = planted.setting(0)
    slow = dataclasses.replace(setting, prefill=dataclasses.replace(setting.prefill, linear_s=1.0, draws=None))
    figure = draw_crossover_map(slow, GPU)
    assert "swap faster everywhere" in [text.get_text() for text in figure.axes[0].texts]


def test_rates_are_bytes_over_the_median() -> None:
    rows = frame()
    rows = rows[(rows["direction"] == "swap_in") & (rows["layout"] == "layer_split")]
    rates = measured_rates(rows)
    assert [rate.fragment_bytes for rate in rates] == [32768, 131072]
    slow = [4096 * 131072 / EXACT.copy_s(64 * 4096 / 16, 4096 * 131072), 1024 * 131072 / EXACT.copy_s(4096, 2**27)]
    assert rates[0].gbps == pytest.approx(np.mean(slow) / 1e9)
    assert (rates[0].low, rates[0].high) == (pytest.approx(min(slow) / 1e9), pytest.approx(max(slow) / 1e9))


def test_rates_with_published_curves_behind() -> None:
    figure = draw_rates(frame(suspect="swap"), published())
    entries = legend_of(figure)
    assert entries[0] == "memcpy_loop (measured)"
    assert "H100 cudaMemcpyAsync loop, vLLM blog (published)" in entries
    assert {"24 to 32 KiB: step of the batch call", "hollow: suspect"} <= set(entries)
    assert len(lines_of(figure, "published")) == len(published_curves(published()))
    assert all(line.get_linestyle() == "-" for line in lines_of(figure, "memcpy_loop"))
    assert all(line.get_linestyle() == "--" for line in lines_of(figure, "published"))
    (hollow,) = lines_of(figure, "memcpy_loop-suspect")
    assert hollow.get_markerfacecolor() == "white"
    for ax in figure.axes:
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("Size of one copy (bytes)", "Rate (GB/s)")
        assert GPU in ax.get_title()
    assert overlaps(figure) == []


def test_published_rates_alone() -> None:
    figure = draw_rates(None, published())
    assert all("(published)" in entry for entry in legend_of(figure)[:-1])
    assert "H100" in figure.axes[0].get_title()
    assert overlaps(figure) == []
    with pytest.raises(NothingToDraw, match="no copy or swap rows"):
        draw_rates(None, None)


def test_recompute_times_and_mfu() -> None:
    """4096 tokens: 4 ms + 4096 x 60 us + 4096^2 x 1.5 ns = 274.9 ms; FLOPs over that and 312 TFLOP/s."""
    figure = draw_recompute(frame(suspect="recompute"), published())
    assert values(figure, "measured")[4096] == pytest.approx(274.9, abs=0.1)
    gpu = find_spec(GPU)
    assert gpu is not None
    mfu = find("llama-3-8b").prefill_flops(4096) / 0.27493 / gpu.bf16_flops
    (line,) = [line for line in figure.axes[1].lines if line.get_gid() == "measured"]
    assert float(np.asarray(line.get_ydata())[1]) == pytest.approx(mfu, rel=1e-3)
    assert {line.get_markerfacecolor() for line in lines_of(figure, "measured-suspect")} == {"white"}
    assert "hollow: suspect" in legend_of(figure)
    assert overlaps(figure) == []


def test_prefill_and_first_token_are_two_lines() -> None:
    figure = draw_recompute(None, published())
    entries = legend_of(figure)
    assert "H100-SXM5-80GB prefill: aiconfigurator kernels (published)" in entries
    assert "H100-SXM5-80GB to first token: vLLM blog (published)" in entries
    assert "H200 roofline at 0.70 of peak (modelled)" in entries
    assert not any("measured" in entry for entry in entries)
    assert len(figure.axes) == 4
    assert overlaps(figure) == []
    with pytest.raises(NothingToDraw, match="no prefill of qwen3-8b"):
        draw_recompute(frame(), None, models=("qwen3-8b",))


def test_generations() -> None:
    """The H100 swaps 4096 tokens in 137.6 ms (32 KiB copies) as in the published Figure 19."""
    figure = draw_generations(None, published())
    titles = [ax.get_title() for ax in figure.axes]
    assert [title.split("\n")[0] for title in titles[:3]] == [
        "A100-SXM4, cloud VM",
        "A100-PCIE, bare host",
        "H100-SXM5",
    ]
    assert all("llama-3-8b" in title for title in titles)
    (split,) = [line for line in figure.axes[2].lines if line.get_gid() == "layer_split"]
    assert dict(zip(split.get_xdata(), split.get_ydata(), strict=True))[4096] == pytest.approx(137.6, abs=0.05)  # type: ignore[arg-type]
    entries = legend_of(figure)
    assert "Swap in+out, layer_split, 32 KiB copies (published)" in entries
    assert "Swap in+out, cross_layer, 2 MiB copies (modelled)" in entries
    assert overlaps(figure) == []


def test_generations_with_measured_rows() -> None:
    figure = draw_generations(frame(suspect="swap"), published())
    assert GPU in figure.axes[0].get_title()
    assert len(figure.axes) == 7 + 2  # unused places are off
    assert values(figure, "recompute")[4096] == pytest.approx(274.9, abs=0.1)
    copies = 64 * 4096 / 16
    assert values(figure, "layer_split")[4096] == pytest.approx(2e3 * EXACT.copy_s(copies, 4096 * 131072))
    assert {"Recompute (measured)", "Recompute (published)", "Recompute (modelled)"} <= set(legend_of(figure))
    assert [line.get_markerfacecolor() for line in lines_of(figure, "layer_split-suspect")] == ["white"]
    assert overlaps(figure) == []


@pytest.mark.parametrize("draw", [draw_rates, draw_recompute, draw_generations])
def test_no_cpu_row_in_a_gpu_figure(draw: Callable[..., Figure]) -> None:
    one_model = cpu().replace({"model": {"mistral-7b": "llama-3-8b"}})  # so that both machines are in one figure
    both = pd.concat([frame(), one_model], ignore_index=True)
    figure = draw(both, published())
    assert not any("CPU" in text for ax in figure.axes for text in (ax.get_title(), *(t.get_text() for t in ax.texts)))
    assert not any("CPU" in entry for entry in legend_of(figure))
    asked = draw(both, published(), with_cpu=True)
    assert any("CPU" in ax.get_title() for ax in asked.axes) or any("CPU" in entry for entry in legend_of(asked))


@pytest.mark.parametrize("draw", [draw_rates, draw_recompute, draw_generations])
def test_cpu_alone_is_marked_and_has_no_gpu_beside_it(draw: Callable[..., Figure]) -> None:
    figure = draw(cpu(), published())
    for ax in (ax for ax in figure.axes if ax.axison):
        assert "CPU" in [text.get_text() for text in ax.texts]
        assert "CPU, not a GPU figure" in ax.get_title()
    assert not any(origin in entry for entry in legend_of(figure) for origin in ("published", "modelled"))
    assert overlaps(figure) == []


def test_figures_are_written(tmp_path: Path) -> None:
    png, svg = save(draw_rates(None, published()), tmp_path / "rates")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in svg.read_bytes()
