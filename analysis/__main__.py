"""`python -m analysis`: figures and tables from result files. Exit code 2 and one line on stderr for bad input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from analysis.contract import BadFile, NothingToDraw, ResultFile, expand, read, read_document
from analysis.machine import machine_label

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
Files = Annotated[list[str], typer.Argument(help="Result files, globs, or label=path.", metavar="FILES...")]
PLAIN_WIDTH = 100


def console() -> Console:
    """The terminal; 100 columns wide where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)


@app.callback()
def _commands() -> None:
    """Figures and tables from result files: swap a preempted sequence's KV cache, or recompute it."""


@app.command()
def figure19(
    files: Files,
    out: Annotated[str, typer.Option(help="Folder, or path without ending.")] = "figures/",
    method: Annotated[list[str], typer.Option(help="Copy method; repeat for more panels.")] = ["memcpy_loop"],  # noqa: B006
    layout: Annotated[list[str], typer.Option(help="Layout of blocks.")] = ["layer_split"],  # noqa: B006
    placement: Annotated[list[str], typer.Option(help="Placement of blocks.")] = ["scattered"],  # noqa: B006
    model: Annotated[list[str], typer.Option(help="Model; all by default.")] = [],  # noqa: B006
    seq_len: Annotated[list[int], typer.Option(help="Tokens of a sequence; all by default.")] = [],  # noqa: B006
    log_y: Annotated[
        bool | None, typer.Option("--log-y/--linear-y", help="Time axis; by default whichever shows every line.")
    ] = None,
    with_cpu: Annotated[bool, typer.Option("--with-cpu", help="Draw CPU panels beside GPU ones.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON and nothing else.")] = False,
) -> None:
    """Figure 19 (a) of the PagedAttention paper: swap and recompute over block sizes."""
    from analysis.figure19 import Selection, panels
    from analysis.figures import draw_figure19, save
    from analysis.load import rows

    selection = Selection(tuple(method), tuple(layout), tuple(placement), tuple(model), tuple(seq_len), with_cpu)
    with _one_line():
        results = read(files)
        with _hint(results):
            found, notes = panels(rows(results), selection)
        paths = save(draw_figure19(found, log_y), _stem(out, "figure19"))
    _print_json(found, notes, paths) if as_json else _print_tables(found, notes, paths)


def _stem(out: str, name: str) -> Path:
    path = Path(out)
    if out.endswith("/") or path.is_dir():
        return path / name
    return path.with_suffix("") if path.suffix in (".png", ".svg") else path


def _print_tables(found: list[Any], notes: list[str], paths: list[Path]) -> None:
    from analysis.tables import figure19_table

    terminal = console()
    for panel in found:
        terminal.print(figure19_table(panel))
    for line in [*notes, *(f"written: {path}" for path in paths)]:
        terminal.print(line, markup=False, soft_wrap=True)


def _print_json(found: list[Any], notes: list[str], paths: list[Path]) -> None:
    from analysis.tables import figure19_values

    values = {"panels": [figure19_values(panel) for panel in found], "notes": notes, "files": [str(p) for p in paths]}
    print(json.dumps(values, indent=2, allow_nan=False))


@app.command()
def schema(files: Files) -> None:
    """Check result files against the contract: a line each, exit code 2 if one is bad."""
    with _one_line():
        found = expand(files)
    bad = False
    for label, path in found:
        try:
            _summarise(ResultFile(path, label, read_document(path)))
        except BadFile as error:
            print(error, file=sys.stderr)
            bad = True
    raise typer.Exit(2 if bad else 0)


def _summarise(file: ResultFile) -> None:
    from analysis.load import rows

    document = file.document
    rows([file])  # duplicates
    suspect = sum(bool(row["extra_info"]["suspect"]) for row in document["benchmarks"])
    counts = {"rows": len(document["benchmarks"]), "suspect": suspect}
    counts |= {kind: len(document[kind]) for kind in ("skipped", "failed")}
    machine = machine_label(document["machine_info"]) + (f" ({file.label})" if file.label else "")
    print(f"{file.path}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}; {machine}")


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn a refusal into one line on stderr and exit code 2."""
    try:
        yield
    except (BadFile, NothingToDraw) as error:
        _stop(str(error))
    except OSError as error:
        _stop(f"{error.filename or 'output'}: {error.strerror or error}")


@contextmanager
def _hint(results: list[ResultFile]) -> Iterator[None]:
    """Say beside a missing row that cases were skipped or failed, and why the first one was."""
    try:
        yield
    except NothingToDraw as error:
        left = [entry for file in results for kind in ("skipped", "failed") for entry in file.document[kind]]
        if not left:
            raise
        first = left[0]["reason"]
        raise NothingToDraw(f"{error} ({len(left)} cases were skipped or failed, the first: {first})") from None


def _stop(line: str) -> NoReturn:
    print(" ".join(line.split()), file=sys.stderr)
    raise typer.Exit(2)


if __name__ == "__main__":
    app(prog_name="python -m analysis")
