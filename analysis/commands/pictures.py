"""Pictures that commands share. What cannot be drawn becomes a note, since the tables stand without it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from analysis.contract import NothingToDraw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.basis import Basis

MOST_MAPS = 9  # panels of one picture


def cost_figures(
    frame: pd.DataFrame, names: Sequence[str], with_cpu: bool = False
) -> tuple[dict[str, Figure], list[str]]:
    """Of "rates", "recompute" and "generations": those that the rows suffice for, and why not the others."""
    from analysis.figures_cost import draw_generations, draw_rates, draw_recompute
    from analysis.published import load_published

    known: dict[str, Callable[..., Figure]]
    known = {"rates": draw_rates, "recompute": draw_recompute, "generations": draw_generations}
    published, figures, notes = load_published(), {}, []
    for name in names:
        try:
            figures[name] = known[name](frame, published, with_cpu=with_cpu)
        except NothingToDraw as error:
            notes.append(f"no picture of {name}: {error}")
    return figures, notes


def crossover_figures(bases: Sequence[Basis]) -> tuple[dict[str, Figure], list[str]]:
    """A map of who wins for each machine and model that has constants, round trips; a panel a way of swapping."""
    from analysis.figures_map import draw_crossover_map

    figures, notes = {}, []
    names = list(dict.fromkeys((basis.name, basis.model, basis.dtype) for basis in bases))
    for name in names:
        mine = [basis for basis in bases if (basis.name, basis.model, basis.dtype) == name]
        settings = {basis.way: basis.setting for basis in mine if basis.setting}
        if not settings:
            notes.append(f"no picture of {name[0]}: {mine[0].refusal}")
            continue
        if len(settings) > MOST_MAPS:
            notes.append(f"picture of {name[0]}: the first {MOST_MAPS} of {len(settings)} ways of swapping")
        shown = dict(list(settings.items())[:MOST_MAPS])
        key = "crossover" if len(names) == 1 else f"crossover-{slug(' '.join(name))}"
        figures[key] = draw_crossover_map(shown, name[0], backend=mine[0].backend)
    return figures, notes


def svg(figure: Figure, name: str) -> bytes:
    """A picture as SVG; the same bytes each time."""
    import matplotlib as mpl

    picture = BytesIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def slug(name: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
