"""`shape`: what a model's geometry alone says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.commands.common import BlockSize, Json, model_shape, one_line, print_json, show
from analysis.contract import NothingToDraw
from kernels import hf_config, shapes
from kernels.kv_layout import KvLayer, KvModel

if TYPE_CHECKING:
    from analysis.grid import Grid

DTYPE = "bfloat16"
HELP = f"Path of a Hugging Face config.json or its folder, or one of {', '.join(shapes.SHAPES)}."
FIGURES = {
    "kv_bytes_per_token": "KV cache, bytes a token",
    "kv_bytes_per_token_growing": "of these in layers without a window",
    "linear_flops_per_token": "linear FLOP a token",
    "flops_per_kv_byte": "linear FLOP a KV byte",
    "break_even_flops_per_byte": "break-even FLOP/s over bytes/s, round trip",
    "weight_bytes": "weights that a prefill reads, bytes",
}


def shape(
    model: Annotated[str, typer.Argument(help=HELP, metavar="MODEL")],
    dtype: Annotated[
        str | None, typer.Option(help=f"Element type of weights and KV cache; the config's, else {DTYPE}, by default.")
    ] = None,
    block_size: BlockSize = [1, 16, 32, 256],  # noqa: B006
    tp: Annotated[int, typer.Option(min=1, help="Tensor parallel degree: figures of one rank.")] = 1,
    as_json: Json = False,
) -> None:
    """KV bytes a token, fragment bytes by layout, FLOP a KV byte, weight bytes: no machine needed."""
    with one_line():
        try:
            values = _values(model, dtype, block_size, tp)
        except ValueError as error:
            raise NothingToDraw(str(error)) from None
    if as_json:
        print_json(values)
    else:
        show((grid.terminal() for grid in _grids(values, tp)), _notes(values))


def _values(model: str, dtype: str | None, block_sizes: list[int], tp: int) -> dict[str, Any]:
    if hf_config.is_path(model):
        found = hf_config.from_file(model)
        return kv_values(found, dtype or found.kv_dtype or DTYPE, block_sizes, tp)
    return shape_values(model_shape(model, tp), dtype or DTYPE, block_sizes)


def shape_values(found: shapes.ModelShape, dtype: str, block_sizes: list[int]) -> dict[str, Any]:
    """The figures of a shape as plain values. ValueError for an unknown dtype."""
    layers = (KvLayer(found.kv_heads, found.head_dim),) * found.layers
    return kv_values(KvModel(found.name, layers, shape=found), dtype, block_sizes)


def kv_values(found: KvModel, dtype: str, block_sizes: list[int], tp: int = 1) -> dict[str, Any]:
    """The figures of one of `tp` ranks as plain values; null where they cannot be computed.

    Raises
    ------
    ValueError
        For an unknown dtype, or KV heads that neither divide over the ranks nor repeat on them.
    """
    sizes = sorted(set(block_sizes))
    layouts = {
        layout: {
            "fragments_per_block": found.fragments_per_block(layout),
            "fragment_bytes": {size: found.fragment_bytes(layout, size, dtype, tp) for size in sizes},
        }
        for layout in shapes.LAYOUTS
    }
    computed, reason = _computed(found, dtype, tp)
    return {
        "model": found.name,
        "dtype": dtype,
        "layers": found.layers,
        "kv_bytes_per_token": found.kv_bytes_per_token(dtype, tp),
        "kv_bytes_per_token_growing": found.kv_bytes_per_token_growing(dtype, tp),
        **computed,
        "cannot_compute": reason or None,
        "notes": list(found.notes),
        "layouts": layouts,
    }


def _computed(found: KvModel, dtype: str, tp: int) -> tuple[dict[str, Any], str]:
    """What follows from the weights, or nulls and the reason."""
    from analysis.crossover import break_even_intensity

    nulls = dict.fromkeys(("linear_flops_per_token", "flops_per_kv_byte", "break_even_flops_per_byte", "weight_bytes"))
    if found.shape is None:
        return nulls, found.cannot_compute
    try:
        part = found.shape.shard(tp)
    except ValueError as error:
        return nulls, str(error)
    return {
        "linear_flops_per_token": part.linear_flops(1),
        "flops_per_kv_byte": part.flops_per_kv_byte(dtype),
        "break_even_flops_per_byte": break_even_intensity(part, dtype),
        "weight_bytes": part.weight_bytes(dtype),
    }, ""


def _grids(values: dict[str, Any], tp: int) -> tuple[Grid, Grid]:
    from analysis.grid import Grid

    title = f"{values['model']}, {values['dtype']}" + (f", one of {tp} ranks" if tp > 1 else "")
    figures = tuple((what, _number(values[key])) for key, what in FIGURES.items())
    fragments = tuple(
        (layout, _number(entry["fragments_per_block"]), *map(_number, entry["fragment_bytes"].values()))
        for layout, entry in values["layouts"].items()
    )
    columns = ("layout", "fragments a block", *(f"block {size}" for size in _sizes(values)))
    return (
        Grid(title, ("what", "value"), figures, numbers=("value",)),
        Grid("Bytes of a fragment, by tokens a block", columns, fragments, numbers=columns[1:]),
    )


def _sizes(values: dict[str, Any]) -> list[int]:
    return list(values["layouts"]["cross_layer"]["fragment_bytes"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _notes(values: dict[str, Any]) -> list[str]:
    reason = values["cannot_compute"]
    return [*([f"no prefill is computed: {reason}"] if reason else []), *values["notes"]]
