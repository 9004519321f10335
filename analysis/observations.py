"""What a cost model is fitted to: medians of cases with their draws, from measured rows or published series."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import published
from analysis.intervals import SEED
from analysis.load import COLUMNS, plain_recompute
from analysis.scaling import to_full_model

Floats = NDArray[np.float64]


class CopyKey(NamedTuple):
    """What one copy fit stands for; "" where an axis does not apply or is not known."""

    machine: str
    method: str
    layout: str
    placement: str
    direction: str
    origin: str = "measured"
    source: str = ""


class PrefillKey(NamedTuple):
    """What one prefill fit stands for. `kind`: "wall" (measured), "prefill_total_s" or "ttft_s" (published)."""

    machine: str
    model: str
    dtype: str
    batch: int = 1
    kind: str = "wall"
    method: str = ""
    origin: str = "measured"
    source: str = ""


@dataclass(frozen=True, eq=False)
class Observations:
    """Cases of one key.

    Attributes
    ----------
    hardware : str
        GPU, link and driver, or the published name.
    x : numpy.ndarray
        Shape (cases, 2): descriptors and bytes; (cases, 1): tokens.
    seconds, issue_s : numpy.ndarray
        Medians over rounds and sessions; `issue_s` is NaN where it was not recorded.
    draws, issue_draws : numpy.ndarray or None
        The same medians of resampled sessions and rounds, shape (resamples, cases); None for published values.
    reading_error : numpy.ndarray
        Relative error of the values themselves: that of reading a published figure; 0 for measured ones.
    notes : tuple of str
        What a reader of the fit must know.
    """

    hardware: str
    backend: str
    x: Floats
    seconds: Floats
    issue_s: Floats
    draws: Floats | None
    issue_draws: Floats | None
    reading_error: Floats
    notes: tuple[str, ...] = ()


def copy_observations(frame: pd.DataFrame, resamples: int) -> dict[CopyKey, Observations]:
    """Cases of verified swaps and copies by key; or of published series. Rows of fewer layers count as they are."""
    if "quantity" in frame.columns:
        return dict(_published_copies(frame))
    rows = frame[frame["verified"].astype(bool)].dropna(subset=["bytes", "descriptors"])
    swaps, copies = (rows[rows["recovery"] == recovery] for recovery in ("swap", "copy"))
    rows = pd.concat([_plain(swaps), copies])  # the axes of a copy sweep are what is fitted
    once = rows["method"] == "contiguous"  # one copy, whatever its plan was before merging
    rows = rows.assign(copies=rows["descriptors"].where(~once, rows["descriptors_merged"]))
    axes = ["machine", "method", "layout", "placement", "direction", "origin"]
    return {
        CopyKey(*names): _measured(group, ["copies", "bytes"], resamples, str(names))
        for names, group in _by(rows, axes)
    }


def prefill_observations(frame: pd.DataFrame, resamples: int) -> dict[PrefillKey, Observations]:
    """Cases of recompute in one piece by key, scaled to the whole model; or of published series."""
    if "quantity" in frame.columns:
        return dict(_published_prefills(frame))
    rows, _ = to_full_model(frame[plain_recompute(frame)])
    rows = _plain(rows, "scaled")
    same = ["machine", "model", "dtype", "batch", "seq_len"]
    rows = rows[rows["layers_timed"] == rows.groupby(same)["layers_timed"].transform("max")]
    rows = rows.assign(tokens=rows["seq_len"] * rows["batch"])
    found = {}
    for names, group in _by(rows, ["machine", "model", "dtype", "batch"]):
        key = PrefillKey(names[0], names[1], names[2], int(names[3]))
        found[key] = _measured(group, ["tokens"], resamples, str(names))
    return found


def _plain(rows: pd.DataFrame, *own: str) -> pd.DataFrame:
    """Without the cases of sweeps that have axes of their own: they ask another question."""
    extra = [name for name in rows.columns if name not in (*COLUMNS, *own)]
    plain = rows[rows[extra].isna().all(axis=1)]
    return rows if plain.empty else plain


def _by(rows: pd.DataFrame, axes: list[str]) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    texts = [axis for axis in axes if axis != "batch"]
    for names, group in rows.fillna(dict.fromkeys(texts, "")).groupby(axes):
        yield tuple(names), group


def _measured(rows: pd.DataFrame, x: list[str], resamples: int, name: str) -> Observations:
    rng = np.random.default_rng((SEED, zlib.crc32(name.encode())))
    sessions = sorted(rows["session"].unique())
    drawn = rng.integers(len(sessions), size=(resamples, len(sessions)))
    cases = [group for _, group in rows.groupby("case_id", sort=False)]
    medians = [_medians(case, sessions, drawn, rng) for case in cases]
    suspect = sum(bool(reasons) for reasons in rows["suspect"])
    single = bool(resamples) and rows.groupby("case_id")["rounds"].sum().max() == 1
    notes = [f"{suspect} of {len(rows)} rows are suspect"] if suspect else []
    if "scaled" in rows.columns and rows["scaled"].any():
        notes.append("rows of fewer layers scaled to the whole model")
    return Observations(
        hardware=str(rows["hardware"].iloc[0]),
        backend=str(rows["backend"].iloc[0]),
        x=np.array([case[x].iloc[0].to_numpy(dtype=float) for case in cases]),
        seconds=np.array([values[0, 0] for values in medians]),
        issue_s=np.array([values[1, 0] for values in medians]),
        draws=None if single or not resamples else np.array([values[0, 1:] for values in medians]).T,
        issue_draws=None if single or not resamples else np.array([values[1, 1:] for values in medians]).T,
        reading_error=np.zeros(len(cases)),
        notes=tuple(notes),
    )


def _medians(case: pd.DataFrame, sessions: list[str], drawn: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Wall and issue medians, shape (2, 1 + resamples): first as measured, then of each resample.

    Sessions are drawn for all cases alike, since what differs between processes (pinned pages, clocks) moves all cases
    together; then rounds within each. A resample without any session of this case takes all of its rounds.
    """
    by_session = dict(iter(case.groupby("session")))
    clocks = ("wall_s", "issue_s")
    pooled = np.array([np.concatenate(list(case[clock])) for clock in clocks])
    medians = np.asarray(np.median(pooled, axis=1, keepdims=True), dtype=float)
    if not len(drawn):
        return medians
    lengths = np.array([by_session[s]["rounds"].iloc[0] if s in by_session else 0 for s in sessions])
    padded = np.full((2, len(sessions), lengths.max()), np.nan)
    for place, session in enumerate(sessions):
        if session in by_session:
            for clock, name in enumerate(clocks):
                padded[clock, place, : lengths[place]] = by_session[session][name].iloc[0]
    length = lengths[drawn][..., None]
    picks = (rng.random((*drawn.shape, padded.shape[2])) * length).astype(np.int64)
    chosen = padded[:, drawn[..., None], picks]
    chosen[:, np.broadcast_to(np.arange(padded.shape[2]) >= length, picks.shape)] = np.nan
    chosen = chosen.reshape(2, len(drawn), -1)
    empty = np.isnan(chosen[0]).all(axis=1)
    draws = np.empty(chosen.shape[:2])
    draws[:, empty] = medians
    draws[:, ~empty] = (
        np.nanmedian(chosen[:, ~empty], axis=2) if np.isnan(chosen[0]).any() else np.median(chosen, axis=2)
    )
    return np.concatenate([medians, draws], axis=1)


def _published_copies(frame: pd.DataFrame) -> Iterator[tuple[CopyKey, Observations]]:
    for series in published.copy_series(frame):
        x = np.column_stack([series.descriptors, series.descriptors * series.fragment_bytes])
        key = CopyKey(series.hardware, series.method, "", "", series.direction, "published", series.source)
        yield key, _from_medians(series.hardware, x, series.seconds, series.reading_error)


def _published_prefills(frame: pd.DataFrame) -> Iterator[tuple[PrefillKey, Observations]]:
    for series in published.prefill_series(frame):
        key = PrefillKey(
            series.hardware, series.model, series.dtype, 1, series.kind, series.method, "published", series.source
        )
        yield key, _from_medians(series.hardware, series.tokens[:, None], series.seconds, series.reading_error)


def _from_medians(hardware: str, x: Floats, seconds: Floats, reading_error: Floats) -> Observations:
    return Observations(hardware, "cuda", x, seconds, np.full_like(seconds, np.nan), None, None, reading_error)
