"""`figure19`: swap and recompute over block sizes, measured or published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from analysis.commands.common import Json, Out, SomeFiles, WithCpu, hint, one_line, print_json, save_all, show
from analysis.contract import NothingToDraw, read

if TYPE_CHECKING:
    from analysis.figure19 import Panel, Selection


def figure19(
    files: SomeFiles = None,
    out: Out = "figures/",
    published: Annotated[bool, typer.Option("--published", help="Draw published machines, with or without FILES.")] = (
        False
    ),
    method: Annotated[list[str], typer.Option(help="Copy method; repeat for more panels.")] = ["memcpy_loop"],  # noqa: B006
    layout: Annotated[list[str], typer.Option(help="Layout of blocks.")] = ["layer_split"],  # noqa: B006
    placement: Annotated[list[str], typer.Option(help="Placement of blocks.")] = ["scattered"],  # noqa: B006
    model: Annotated[list[str], typer.Option(help="Model; all by default.")] = [],  # noqa: B006
    seq_len: Annotated[list[int], typer.Option(help="Tokens of a sequence; all by default.")] = [],  # noqa: B006
    log_y: Annotated[
        bool | None, typer.Option("--log-y/--linear-y", help="Time axis; by default whichever shows every line.")
    ] = None,
    with_cpu: WithCpu = False,
    as_json: Json = False,
) -> None:
    """Figure 19 (a) of the PagedAttention paper: swap and recompute over block sizes."""
    from analysis.figure19 import Selection
    from analysis.figures import draw_figure19
    from analysis.tables import figure19_table, figure19_values

    selection = Selection(tuple(method), tuple(layout), tuple(placement), tuple(model), tuple(seq_len), with_cpu)
    with one_line():
        if not files and not published:
            raise NothingToDraw("no FILES; name result files, or --published for published machines")
        found, notes = _measured(files, selection) if files else ([], [])
        found += _published(selection) if published else []
        paths = save_all({"figure19": draw_figure19(found, log_y)}, out)
    if as_json:
        panels = [figure19_values(panel) for panel in found]
        print_json({"panels": panels, "notes": notes, "files": [str(path) for path in paths]})
    else:
        show(map(figure19_table, found), [*notes, *(f"written: {path}" for path in paths)])


def _measured(files: list[str], selection: Selection) -> tuple[list[Panel], list[str]]:
    from analysis.figure19 import panels
    from analysis.load import rows

    results = read(files)
    with hint(results):
        return panels(rows(results), selection)


def _published(selection: Selection) -> list[Panel]:
    """The published panels of the models and lengths that were named; all of them otherwise."""
    from analysis.published import load_published
    from analysis.published_figure19 import CASES, published_panels

    models = selection.models or tuple(dict.fromkeys(model for model, _ in CASES))
    lengths = selection.seq_lens or tuple(dict.fromkeys(tokens for _, tokens in CASES))
    cases = tuple(case for case in CASES if case[0] in models and case[1] in lengths)
    if not cases:
        known = "; ".join(f"{model} at {tokens} tokens" for model, tokens in CASES)
        raise NothingToDraw(f"no published panel of that model and length; there are: {known}")
    return published_panels(load_published(), cases)
