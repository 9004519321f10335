"""How long a prefill takes by length, and how much of the peak it reaches: measured, published and modelled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import published as pub
from analysis.contract import NothingToDraw
from analysis.drawing import (
    draw_curve,
    entitle,
    legend_below,
    log2_axis,
    log_axis,
    looks,
    new_figure,
    without_cpu,
)
from analysis.efficiencies import derive
from analysis.intervals import Estimate
from analysis.load import COLUMNS
from analysis.measured import seconds
from analysis.predict import predict_recompute
from analysis.published_hosts import series_text
from analysis.scaling import to_full_model
from kernels.shapes import SHAPES, ModelShape, find
from kernels.specs import GpuSpec, all_specs
from kernels.specs import find as find_spec

MODELS = ("llama-3-8b", "opt-13b")
HARDWARE = ("A100-80GB", "A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM-141GB")  # published rows drawn unless named
MODELLED = ("A100-80GB", "H100-SXM", "H200")  # data sheets that a roofline is drawn for
LONGEST = 8192  # tokens of a roofline where nothing else is drawn
INCHES = (6.0, 4.4)
MS = 1e3
KINDS = {"prefill_total_s": "prefill", "ttft_s": "to first token"}


class Line(NamedTuple):
    """One line of both panels: seconds (`times`) over tokens; `gpu` None where no data sheet is known."""

    name: str
    hardware: str
    origin: str
    tokens: list[int]
    times: list[Estimate]
    gpu: GpuSpec | None
    suspect: list[bool]
    batch: int = 1


def draw_recompute(
    frame: pd.DataFrame | None = None,
    published: pd.DataFrame | None = None,
    *,
    models: Sequence[str] = (),
    hardware: Sequence[str] = HARDWARE,
    with_cpu: bool = False,
) -> Figure:
    """Recompute time and MFU over length, log-log, a row of panels a model.

    Parameters
    ----------
    frame : pandas.DataFrame, optional
        Of `analysis.load.load`; rows of fewer layers are scaled to the model, and the line says so.
    published : pandas.DataFrame, optional
        Of `load_published`. Prefill times (`prefill_total_s`) and times to first token (`ttft_s`) are lines of their
        own; with them come rooflines (modelled). None of it beside a CPU unless asked.
    models : sequence of str, optional
        By default those measured, else `MODELS`.
    hardware : sequence of str
        Published machines to draw.
    with_cpu : bool
        Draw CPU lines beside GPU ones.

    Raises
    ------
    NothingToDraw
        If no row has a prefill of a model that is asked for.
    """
    rows = None if frame is None else without_cpu(frame[frame["recovery"] == "recompute"], with_cpu)
    cpu = rows is not None and not rows.empty and bool((rows["backend"] == "cpu").all()) and not with_cpu
    known = [] if rows is None else [str(model) for model in rows["model"].dropna().unique()]
    lines = {model: _lines(rows, None if cpu else published, model, hardware) for model in (models or known or MODELS)}
    lines = {model: found for model, found in lines.items() if found}
    if not lines:
        raise NothingToDraw(f"no prefill of {', '.join(models) or 'a model'} in the rows given")
    figure, axes = new_figure(2 * len(lines), 2, INCHES)
    styles = looks(line.name for found in lines.values() for line in found)
    handles: list[Any] = []
    for index, (model, found) in enumerate(lines.items()):
        time_ax, mfu_ax = axes[2 * index : 2 * index + 2]
        handles += _draw_times(time_ax, found, styles)
        _draw_mfu(mfu_ax, model, found, styles)
        for ax, what in ((time_ax, "recompute time"), (mfu_ax, "share of the dense 16-bit peak")):
            entitle(ax, (_machines(found), f"{model}: {what}"), 66, cpu)
    legend_below(figure, handles)
    return figure


def _lines(
    rows: pd.DataFrame | None, published: pd.DataFrame | None, model: str, hardware: Sequence[str]
) -> list[Line]:
    found = [] if rows is None else list(_measured(rows, model))
    if published is not None:
        found += _published(published, model, hardware)
        if model in SHAPES:
            found += _modelled(published, model, max((n for line in found for n in line.tokens), default=LONGEST))
    return found


def _machines(found: Sequence[Line]) -> str:
    """Hardware of the measured lines, else of the published ones."""
    measured, published = (
        dict.fromkeys(line.hardware for line in found if line.origin == origin) for origin in ("measured", "published")
    )
    return "; ".join(measured) or ", ".join(published)


def _measured(rows: pd.DataFrame, model: str) -> Iterator[Line]:
    rows, _ = to_full_model(rows[rows["model"] == model])
    extra = [name for name in rows.columns if name not in COLUMNS and name != "scaled"]
    rows = rows[rows[extra].isna().all(axis=1)]
    short = _short_names([str(machine) for machine in rows["machine"].unique()])
    for (machine, dtype, batch), group in rows.groupby(["machine", "dtype", "batch"]):
        points = [(int(cases["seq_len"].iloc[0]), cases) for _, cases in group.groupby("seq_len")]
        layers = f", {group['layers_timed'].max()} of {group['layers_model'].max()} layers scaled to all"
        many = f" x {batch}" if int(str(batch)) > 1 else ""
        yield Line(
            f"{short[str(machine)]}: {dtype}{many}{layers if group['scaled'].all() else ''}",
            str(machine),
            "measured",
            [tokens for tokens, _ in points],
            [seconds(cases) for _, cases in points],
            find_spec(str(group["hardware"].iloc[0]).split(",")[0]),
            [bool(cases["suspect"].map(bool).any()) for _, cases in points],
            int(str(batch)),
        )


def _short_names(machines: Sequence[str]) -> dict[str, str]:
    """The GPU alone where that tells the machines apart; link and driver stand in the title."""
    short = [machine.split(",")[0] for machine in machines]
    return dict(zip(machines, short if len(set(short)) == len(short) else machines, strict=True))


def _published(published: pd.DataFrame, model: str, hardware: Sequence[str]) -> Iterator[Line]:
    for series in pub.prefill_series(published):
        if series.model != model or series.hardware not in hardware or len(series.tokens) < 2:
            continue
        tokens = [int(count) for count in series.tokens]
        name = f"{series.hardware} {KINDS[series.kind]}: {series_text(series)}"
        times = [Estimate(float(value)) for value in series.seconds]
        gpu = pub.find_spec(series.hardware)
        yield Line(name, series.hardware, "published", tokens, times, gpu, [False] * len(tokens))


def _modelled(published: pd.DataFrame, model: str, longest: int) -> Iterator[Line]:
    shape, known = find(model), derive(published)
    tokens = [2**power for power in range(6, longest.bit_length())]
    for gpu in (spec for spec in all_specs() if spec.name in MODELLED):
        times = [Estimate(predict_recompute(shape, count, gpu, known).seconds) for count in tokens]
        name = f"{gpu.name} roofline at {known.flops_share.value:.2f} of peak"
        yield Line(name, gpu.name, "modelled", tokens, times, gpu, [False] * len(tokens))


def _draw_times(ax: Axes, found: Sequence[Line], styles: dict[str, tuple[str, Any]]) -> list[Any]:
    handles: list[Any] = []
    for line in found:
        handles += _draw(ax, line, line.times, styles, MS)
    _label_x(ax, found)
    log_axis(ax, "Time (ms)")
    return handles


def _draw_mfu(ax: Axes, model: str, found: Sequence[Line], styles: dict[str, tuple[str, Any]]) -> None:
    shape = SHAPES.get(model)
    drawn = 0
    for line in found:
        if line.gpu is None or shape is None:
            continue
        _draw(ax, line, [Estimate(share) for share in mfu(shape, line)], styles)
        drawn += 1
    if not drawn:
        ax.text(0.5, 0.85, "no data sheet, so no peak", transform=ax.transAxes, ha="center", fontsize=9)
    _label_x(ax, found)
    ax.set_ylim(0, 1)
    ax.set_ylabel("MFU (FLOP/s over peak)")


def mfu(shape: ModelShape, line: Line) -> list[float]:
    """FLOPs of the prefill over seconds and the data sheet's dense peak; ValueError without a data sheet."""
    if line.gpu is None:
        raise ValueError(f"{line.name}: no data sheet, so no peak")
    flops = [line.batch * shape.prefill_flops(tokens) for tokens in line.tokens]
    return [work / taken.value / line.gpu.bf16_flops for work, taken in zip(flops, line.times, strict=True)]


def _draw(ax: Axes, line: Line, y: list[Estimate], styles: dict[str, tuple[str, Any]], unit: float = 1.0) -> list[Any]:
    marker, colour = styles[line.name]
    about: dict[str, Any] = {"label": line.name, "origin": line.origin, "suspect": line.suspect, "gid": line.origin}
    return draw_curve(ax, line.tokens, y, marker=marker, colour=colour, size=5, unit=unit, **about)


def _label_x(ax: Axes, found: Sequence[Line]) -> None:
    log2_axis(ax, [tokens for line in found for tokens in line.tokens], "Length (tokens)", ticks=8)
