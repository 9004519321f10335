"""What commands share: arguments, the terminal, JSON, and refusals of one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from analysis.contract import BadFile, NothingToDraw, ResultFile
from kernels import shapes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.console import RenderableType

PLAIN_WIDTH = 100
CPU_WARNING = "CPU, NOT A GPU FIGURE"
HELP = "Result files, globs, or label=path."
Files = Annotated[list[str], typer.Argument(help=HELP, metavar="FILES...")]
SomeFiles = Annotated[list[str] | None, typer.Argument(help=HELP, metavar="[FILES...]", show_default=False)]
Out = Annotated[str, typer.Option(help="Folder, or path without ending.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
WithCpu = Annotated[bool, typer.Option("--with-cpu", help="Show CPU rows beside GPU ones.")]
Layout = Annotated[list[str], typer.Option(help="Layout of blocks; all by default.")]
Model = Annotated[list[str], typer.Option(help="Model; all by default.")]
BlockSize = Annotated[list[int], typer.Option(min=1, help="Tokens of a block; repeat for more.")]
SeqLen = Annotated[list[int], typer.Option(min=1, help="Tokens of a sequence; repeat for more.")]


class OneLine(typer.core.TyperGroup):
    """Options and arguments that are wrong are one line on stderr too."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run; end with the exit code of the command, or with 2 after one line."""
        try:
            code = super().main(*args, **(kwargs | {"standalone_mode": False}))
        except Exception as error:
            # Whatever click raises for bad usage; its home differs between versions of typer, so by name.
            if not hasattr(error, "format_message"):
                raise
            message = error.format_message()
            if type(error).__name__ == "NoArgsIsHelpError":
                print(message)
                sys.exit(2)
            stop(message)
        sys.exit(code if isinstance(code, int) else 0)


def console() -> Console:
    """The terminal; 100 columns wide where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)


def show(parts: Iterable[RenderableType], lines: Sequence[str] = ()) -> None:
    """Print tables, then plain lines that are not wrapped."""
    terminal = console()
    for part in parts:
        terminal.print(part)
    for line in lines:
        terminal.print(line, markup=False, highlight=False, soft_wrap=True)


def print_json(values: Any) -> None:
    """JSON on stdout; ValueError for NaN, which JSON does not have."""
    print(json.dumps(values, indent=2, allow_nan=False))


def stop(line: str) -> NoReturn:
    """One line on stderr and exit code 2."""
    print(" ".join(line.split()), file=sys.stderr)
    raise SystemExit(2)


@contextmanager
def one_line() -> Iterator[None]:
    """Turn a refusal into one line on stderr and exit code 2."""
    try:
        yield
    except (BadFile, NothingToDraw) as error:
        stop(str(error))
    except OSError as error:
        stop(f"{error.filename or 'output'}: {error.strerror or error}")


@contextmanager
def hint(results: list[ResultFile]) -> Iterator[None]:
    """Say beside a missing row that cases were skipped or failed, and why the first one was."""
    try:
        yield
    except NothingToDraw as error:
        left = [entry for file in results for kind in ("skipped", "failed") for entry in file.document[kind]]
        if not left:
            raise
        first = left[0]["reason"]
        raise NothingToDraw(f"{error} ({len(left)} cases were skipped or failed, the first: {first})") from None


def stem(out: str, name: str) -> Path:
    """Where a picture goes: `out` is a folder, or a path without (or with) the ending of a picture."""
    path = Path(out)
    if out.endswith("/") or path.is_dir():
        return path / name
    return path.with_suffix("") if path.suffix in (".png", ".svg") else path


def save_all(figures: dict[str, Figure], out: str) -> list[Path]:
    """Write pictures by name; one alone may be named by `out` itself, several carry their names after it."""
    from analysis.figures import save

    written = []
    for name, figure in figures.items():
        at = stem(out, name)
        written += save(figure, at if len(figures) == 1 or at.name == name else at.with_name(f"{at.name}-{name}"))
    return written


def model_shape(name: str, tp: int = 1) -> shapes.ModelShape:
    """A known shape, `-tpN` for one of N shards. NothingToDraw with the known names."""
    base, _, part = name.partition("-tp")
    try:
        shard = int(part or tp)
        return shapes.find(base if part.isdigit() else name).shard(shard)
    except ValueError as error:
        raise NothingToDraw(str(error)) from None


def empty_frame() -> pd.DataFrame:
    """No rows, all columns."""
    from analysis.load import rows

    return rows([])
