"""`crossover`: where swap and recompute tie, and what the rules of other systems would choose there."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.commands.common import (
    CPU_WARNING,
    BlockSize,
    Json,
    Layout,
    Model,
    Out,
    SeqLen,
    SomeFiles,
    WithCpu,
    hint,
    one_line,
    print_json,
    save_all,
    show,
)
from analysis.contract import NothingToDraw, read

if TYPE_CHECKING:
    from rich.console import RenderableType

    from analysis.basis import Basis
    from analysis.figure19 import Selection


class Trip(StrEnum):
    """What is swapped: out and in, or in alone (the host holds a copy already)."""

    ROUND_TRIP = "round-trip"
    LOAD_ONLY = "load-only"


def crossover(
    files: SomeFiles = None,
    out: Out = "figures/",
    published: Annotated[bool, typer.Option("--published", help="Published constants, with or without FILES.")] = False,
    model: Model = [],  # noqa: B006
    method: Annotated[list[str], typer.Option(help="Copy method; all by default.")] = [],  # noqa: B006
    layout: Layout = [],  # noqa: B006
    block_size: BlockSize = [],  # noqa: B006
    seq_len: SeqLen = [],  # noqa: B006
    trip: Annotated[list[Trip], typer.Option(help="Both by default.")] = [],  # noqa: B006
    with_cpu: WithCpu = False,
    as_json: Json = False,
) -> None:
    """Lengths, block sizes, link rates and preemptions at which swap and recompute cost the same."""
    from rich.text import Text

    from analysis.commands.pictures import crossover_figures
    from analysis.figure19 import Selection
    from analysis.tables_crossover import basis_values, heading, regret_grid, regrets, tie_grids
    from analysis.ties import ties

    lengths, blocks = tuple(sorted(set(seq_len))), tuple(sorted(set(block_size)))
    selection = Selection(tuple(method), tuple(layout), (), tuple(model), lengths, with_cpu)
    trips = tuple(str(name) for name in dict.fromkeys(trip)) or tuple(map(str, Trip))
    with one_line():
        bases, notes = find_bases(files, published, selection, blocks)
        figures, without = crossover_figures(bases)
        answers = [(basis, ties(basis, trips), regrets(basis, trips)) for basis in bases]
        paths = save_all(figures, out)
    notes = [*notes, *without]
    if as_json:
        found = [basis_values(*answer) for answer in answers]
        print_json({"settings": found, "notes": notes, "files": [str(path) for path in paths]})
        return
    parts: list[RenderableType] = []
    for basis, found_ties, table in answers:
        tables = [heading(basis), *tie_grids(basis, found_ties), regret_grid(basis, table)]
        warning = [Text(f"*** {CPU_WARNING} ***", style="bold red")] if basis.backend == "cpu" else []
        parts += [*warning, *(grid.terminal() for grid in tables)]
    cpu = [f"*** {CPU_WARNING} ***"] if any(basis.backend == "cpu" for basis in bases) else []
    show(parts, [*notes, *cpu, *(f"written: {path}" for path in paths)])


def find_bases(
    files: list[str] | None, published: bool, selection: Selection, blocks: tuple[int, ...]
) -> tuple[list[Basis], list[str]]:
    """Measured, then published."""
    from analysis.basis import measured_bases
    from analysis.load import rows
    from analysis.published import load_published
    from analysis.published_basis import published_bases

    if not files and not published:
        raise NothingToDraw("no FILES; name result files, or --published for published constants")
    bases: list[Basis] = []
    notes: list[str] = []
    if files:
        results = read(files)
        with hint(results):
            bases, notes = measured_bases(rows(results), selection, blocks)
    if published:
        more, sources = published_bases(load_published(), selection, blocks)
        bases, notes = [*bases, *more], [*notes, *sources]
    return bases, notes
