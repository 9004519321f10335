"""`methods`: how fast each copy method moves fragments, and which is the fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.commands.common import Files, Json, Out, WithCpu, hint, one_line, print_json, save_all, show
from analysis.contract import read

if TYPE_CHECKING:
    import pandas as pd

    from analysis.grid import Grid


def methods(
    files: Files,
    out: Out = "figures/",
    with_cpu: WithCpu = False,
    as_json: Json = False,
) -> None:
    """GB/s by fragment size and copy method, published curves behind; the fastest method of each point."""
    from analysis.drawing import without_cpu
    from analysis.figures_methods import best_methods, draw_best_methods
    from analysis.figures_rates import draw_rates
    from analysis.load import rows
    from analysis.published import load_published
    from analysis.tables_rows import rates_grid

    with one_line():
        results = read(files)
        frame = rows(results)
        with hint(results):
            best = best_methods(frame, with_cpu)
        figures = {
            "rates": draw_rates(frame, load_published(), with_cpu=with_cpu),
            "methods": draw_best_methods(frame, with_cpu),
        }
        paths = save_all(figures, out)
    if as_json:
        known = best.astype(object).where(best.notna(), None)
        print_json({"best": known.to_dict("records"), "written": [str(path) for path in paths]})
        return
    grids = (rates_grid(without_cpu(frame, with_cpu)), _best_grid(best))
    show((grid.terminal() for grid in grids), [f"written: {path}" for path in paths])


def _best_grid(best: pd.DataFrame) -> Grid:
    """The fastest method of each fragment size, count, placement and direction."""
    from analysis.grid import Grid

    columns = ("machine", "direction", "placement", "bytes a fragment", "fragments", "method", "GB/s", "% of ceiling")
    lines = tuple(
        (
            *(str(row[name]) for name in ("machine", "direction", "placement")),
            f"{row['fragment_bytes']:,.0f}",
            f"{row['fragments']:,.0f}",
            str(row["method"]),
            f"{row['gbps']:.3g}",
            "-" if row["share"] != row["share"] else f"{100 * row['share']:.0f}",
        )
        for row in best.to_dict("records")
    )
    return Grid("The fastest method (measured)", columns, lines, numbers=(*columns[3:5], *columns[6:]))
