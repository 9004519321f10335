"""`python -m analysis`: figures and tables from result files. Exit code 2 and one line on stderr for bad input."""

from __future__ import annotations

import typer

from analysis.commands.claims import claims
from analysis.commands.common import OneLine
from analysis.commands.compare import compare
from analysis.commands.crossover import crossover
from analysis.commands.figure19 import figure19
from analysis.commands.methods import methods
from analysis.commands.predict import predict
from analysis.commands.recoveries import recoveries
from analysis.commands.report import report
from analysis.commands.schema import schema
from analysis.commands.shape import shape

app = typer.Typer(
    cls=OneLine, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


@app.callback()
def _commands() -> None:
    """Figures and tables from result files: swap a preempted sequence's KV cache, or recompute it."""


for command in (figure19, crossover, claims, methods, recoveries, compare, predict, report, shape, schema):
    app.command()(command)


if __name__ == "__main__":
    app(prog_name="python -m analysis")
