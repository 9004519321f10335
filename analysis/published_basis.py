"""Published constants to compare swap and recompute on: a loop of copies and prefills of the same GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.basis import Basis, as_layout, known_shape
from analysis.contract import NothingToDraw
from analysis.cost_model import CopyFit, CopyKey, PrefillFit, PrefillKey, fit_copies, fit_prefill
from analysis.figure19 import Selection
from analysis.published import copy_series, find_shape
from analysis.published_hosts import LOOP
from analysis.setting import Setting
from kernels.shapes import LAYOUTS

PUBLISHED_LENGTHS = (256, 1024, 4096, 16384)
PUBLISHED_BLOCKS = (1, 16, 256)


def published_bases(
    published: pd.DataFrame, selection: Selection, block_sizes: tuple[int, ...] = ()
) -> tuple[list[Basis], list[str]]:
    """Machines whose published loop of copies and whose published prefills (kernel time) both give constants.

    Raises
    ------
    NothingToDraw
        If none is left of the models, layouts and methods named.
    """
    looped = {series.hardware for series in copy_series(published) if series.method == LOOP}
    rows = published[published["hardware"].isin(looped)]
    copies, prefills = fit_copies(rows), fit_prefill(rows)
    bases = [
        _published(key, copies, prefill_key, prefill, layout, selection.seq_lens, block_sizes)
        for key, fit in copies.items()
        if key.method == LOOP and key.direction == "swap_in" and not fit.refusal
        for prefill_key, prefill in prefills.items()
        if (prefill_key.machine, prefill_key.kind) == (key.machine, "prefill_total_s") and not prefill.refusal
        if known_shape(prefill_key.model)
        for layout in selection.layouts or ("layer_split", "cross_layer")
    ]
    models = sorted({basis.model for basis in bases})
    chosen = [basis for basis in bases if not selection.models or basis.model in selection.models]
    chosen = [basis for basis in chosen if not selection.methods or basis.method in selection.methods]
    if not chosen:
        raise NothingToDraw(f"nothing published of that; there are: models {', '.join(models)}; method {LOOP}")
    return chosen, list(_published_notes(chosen))


def _published(
    key: CopyKey,
    copies: dict[CopyKey, CopyFit],
    prefill_key: PrefillKey,
    prefill: PrefillFit,
    layout: str,
    lengths: tuple[int, ...],
    block_sizes: tuple[int, ...],
) -> Basis:
    if layout not in LAYOUTS:
        raise NothingToDraw(f"unknown layout {layout!r}; known: {', '.join(LAYOUTS)}")
    out = copies[key._replace(direction="swap_out")]
    shape = find_shape(prefill_key.model)
    setting = Setting(shape, prefill_key.dtype, as_layout(layout), prefill, copies[key], out)
    return Basis(
        machine=key.machine,
        hardware=key.machine,
        backend="cuda",
        model=prefill_key.model,
        dtype=prefill_key.dtype,
        batch=1,
        method=key.method,
        layout=layout,
        placement="",
        origin="published",
        source=f"copies: {key.source}; prefill: {prefill_key.source}, {prefill_key.method}",
        shape=shape,
        setting=None if out.refusal else setting,
        refusal=out.refusal or "",
        panels=(),
        lengths=lengths or PUBLISHED_LENGTHS,
        block_sizes=block_sizes or PUBLISHED_BLOCKS,
    )


def _published_notes(chosen: list[Basis]) -> Iterator[str]:
    yield from dict.fromkeys(f"{basis.machine}, {basis.model}: {basis.source}" for basis in chosen)
