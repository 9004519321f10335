"""`predict`: swap and recompute of a model on machines nobody measured, and how far off such predictions are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.commands.common import BlockSize, Json, SeqLen, SomeFiles, model_shape, one_line, print_json, show
from analysis.contract import NothingToDraw, read
from kernels import shapes
from kernels.specs import GpuSpec, all_specs, find

if TYPE_CHECKING:
    import pandas as pd


def predict(
    model: Annotated[str, typer.Argument(help=f"One of {', '.join(shapes.SHAPES)}; -tpN: a shard.", metavar="MODEL")],
    files: SomeFiles = None,
    gpu: Annotated[list[str], typer.Option(help="GPU of results/specs.toml; all by default.")] = [],  # noqa: B006
    seq_len: SeqLen = [256, 1024, 4096, 16384],  # noqa: B006
    block_size: BlockSize = [16],  # noqa: B006
    layout: Annotated[str, typer.Option(help="Layout of blocks.")] = "layer_split",
    dtype: Annotated[str, typer.Option(help="Element type of weights and KV cache.")] = "bfloat16",
    cases: Annotated[
        bool, typer.Option("--cases", help="Every case that is predicted and known, with its factor.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Seconds from data sheets and published efficiencies; FILES add measured cases to the accuracy table."""
    from analysis.accuracy import summary
    from analysis.predictions import accuracy_grid, accuracy_values, cases_grid, grids, predict_all

    with one_line():
        shape = model_shape(model)
        gpus = [_gpu(name) for name in dict.fromkeys(gpu)] or list(all_specs())
        if layout not in shapes.LAYOUTS:
            raise NothingToDraw(f"unknown layout {layout!r}; known: {', '.join(shapes.LAYOUTS)}")
        if dtype not in shapes.DTYPE_BYTES:
            raise NothingToDraw(f"unknown dtype {dtype!r}; known: {', '.join(shapes.DTYPE_BYTES)}")
        compared = _compared(files)
        how = next(name for name in shapes.LAYOUTS if name == layout)
        found = predict_all(shape, gpus, sorted(set(seq_len)), sorted(set(block_size)), how, dtype)
    if as_json:
        known = compared.astype(object).where(compared.notna(), None).to_dict("records")
        values = {"predictions": [entry.values() for entry in found], "accuracy": accuracy_values(summary(compared))}
        print_json(values | {"cases": known})
    else:
        each = [cases_grid(compared)] if cases else []
        show(grid.terminal() for grid in [*grids(found), accuracy_grid(summary(compared)), *each])


def _gpu(name: str) -> GpuSpec:
    exact = next((spec for spec in all_specs() if spec.name.lower() == name.lower()), None)
    if found := exact or find(name):
        return found
    raise NothingToDraw(f"unknown GPU {name!r}; known: {', '.join(spec.name for spec in all_specs())}")


def _compared(files: list[str] | None) -> pd.DataFrame:
    from analysis.accuracy import compare
    from analysis.load import rows
    from analysis.published import load_published

    frame: Any = rows(read(files)) if files else None
    return compare(frame, load_published())
