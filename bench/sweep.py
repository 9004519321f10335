"""A sweep is a TOML file: axes that every bench file shares, and a table a bench file for what differs there.

Swap, recompute and copy always have cases; the other bench files have some where the sweep has their table.

Precedence, strongest first: command line, the file's own table (`[swap]`, `[recompute]`), the file's flat keys, the
`quick` sweep.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.cases import POLICIES, RECOVERIES
from kernels import copy_methods, hf_config, shapes
from kernels.paged_kv import run_length

SWEEPS = Path(__file__).with_name("sweeps")
TABLES = RECOVERIES
# These run where a sweep has their table, be it empty; the others always.
BY_NAME = ("ridge", "batching", "preemptions", "hybrid", "interference", "resume")


class SweepError(ValueError):
    """A sweep that names something unknown, or a value out of range."""


@dataclass(frozen=True)
class Axes:
    """The axes of one bench file.

    Attributes
    ----------
    model : tuple of str
        Names in `kernels.shapes.SHAPES`. A sweep or `--model` may give the path of a config.json instead: its model is
        added to them, under the name of its file or folder.
    layers : int
        Layers to time, 0 for all.
    seq_lens, block_sizes : tuple of int
        Tokens.
    pool_tokens : int
        Tokens a pool has room for; 0 is twice the sequence.
    budget_s : float
        Seconds a case may take, warm-up included.
    programs : tuple of int
        Programs of `direct_kernel`.
    staging_bytes : tuple of int
        Bytes of the staging buffer of `gather_copy`.
    fragment_bytes, fragments : tuple of int
        Table `[copy]` only: bytes of a fragment, and how many there are.
    max_bytes : int
        Table `[copy]` only: points with more bytes in all are left out.
    chunk_tokens, cached_percent : tuple of int
        Table `[recompute]` only: tokens of a chunk, 0 for one piece; percent of the tokens that are cached.
    batch_tokens, matrices, memory_bytes : tuple of int
        Table `[ridge]` only: tokens of a prefill; rows of square matrices; bytes that are copied within the device.
    policies : tuple of str
        Tables `[batching]`, `[preemptions]` and `[resume]`: how a sequence comes back.
    prefill_tokens, decode_batches : tuple of int
        Tables `[batching]` and `[interference]`: tokens of the prefill, and sequences of the decode step, beside.
    decode_context : int
        There too: tokens that each decoding sequence has cached.
    preemptions, growth_tokens : tuple of int
        Table `[preemptions]` only: how often, and tokens by which the sequence grows in between.
    fractions : tuple of float
        Table `[hybrid]` only: parts of the sequence that are computed.
    """

    model: tuple[str, ...]
    dtype: str
    layers: int
    seq_lens: tuple[int, ...]
    block_sizes: tuple[int, ...]
    layouts: tuple[shapes.Layout, ...]
    placements: tuple[str, ...]
    methods: tuple[str, ...]
    batch: int
    pool_tokens: int
    budget_s: float
    programs: tuple[int, ...]
    staging_bytes: tuple[int, ...]
    fragment_bytes: tuple[int, ...] = ()
    fragments: tuple[int, ...] = ()
    max_bytes: int = 0
    chunk_tokens: tuple[int, ...] = (0,)
    cached_percent: tuple[int, ...] = (0,)
    batch_tokens: tuple[int, ...] = ()
    matrices: tuple[int, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    policies: tuple[str, ...] = ()
    prefill_tokens: tuple[int, ...] = ()
    decode_batches: tuple[int, ...] = ()
    decode_context: int = 0
    preemptions: tuple[int, ...] = ()
    growth_tokens: tuple[int, ...] = ()
    fractions: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """A sweep as it will be run: one `Axes` a bench file."""

    name: str
    tables: Mapping[str, Axes]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for the result file."""
        return {"name": self.name} | {table: asdict(axes) for table, axes in self.tables.items()}


def load(sweep: str, overrides: Mapping[str, Any] | None = None) -> Sweep:
    """Read a sweep by name or path and put command-line values on top.

    Raises
    ------
    SweepError
        One line: what is unknown or out of range, and what is known.
    """
    path = _find(sweep)
    defaults, given = _read(SWEEPS / "quick.toml"), _read(path)
    flat = defaults | {key: value for key, value in given.items() if not isinstance(value, dict)}
    tables = {}
    for table in TABLES:
        if table in BY_NAME and table not in given:
            continue
        own = {key: _PLAIN.get(key, defaults[table][key]) for key in _OWN.get(table, {})}
        values = flat | own | given.get(table, {}) | dict(overrides or {})
        checks = _CHECKS | _OWN.get(table, {})
        tables[table] = Axes(**{key: check(key, values[key]) for key, check in checks.items()})
    return Sweep(path.stem, tables)


def _find(sweep: str) -> Path:
    named, path = SWEEPS / f"{sweep}.toml", Path(sweep)
    if path.suffix == ".toml":
        if not path.is_file():
            raise SweepError(f"--sweep {sweep}: no such file")
        return path
    if not named.is_file():
        known = ", ".join(sorted(known.stem for known in SWEEPS.glob("*.toml")))
        raise SweepError(f"--sweep {sweep}: unknown sweep; known: {known}, or a path to a .toml file")
    return named


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SweepError(f"{path.name}: not a TOML file: {error}") from error
    for name, table in values.items():
        if isinstance(table, dict) and name not in TABLES:
            raise SweepError(f"{path.name}: unknown table [{name}]; known: {', '.join(TABLES)}")
        known = _CHECKS | (_OWN.get(name, {}) if isinstance(table, dict) else {})
        for key in table if isinstance(table, dict) else (name,):
            if key not in known:
                raise SweepError(f"{path.name}: unknown key {key!r}; known: {', '.join(known)}")
    return values


def _many(check: Callable[[str, Any], Any]) -> Callable[[str, Any], tuple[Any, ...]]:
    def check_all(key: str, values: Any) -> tuple[Any, ...]:
        values = values if isinstance(values, list | tuple) else [values]
        if not values:
            raise SweepError(f"{key}: an empty list leaves nothing to measure")
        checked = tuple(check(key, value) for value in values)
        if len(set(checked)) < len(checked):
            raise SweepError(f"{key}: {values} names something twice")
        return checked

    return check_all


def _any_number(check: Callable[[str, Any], Any]) -> Callable[[str, Any], tuple[Any, ...]]:
    """As `_many`, and an empty list is an answer."""
    return lambda key, values: () if values == [] else _many(check)(key, values)


def _one_of(*known: str) -> Callable[[str, Any], str]:
    def check(key: str, value: Any) -> str:
        if value not in known:
            raise SweepError(f"{key}: unknown {value!r}; known: {', '.join(known)}")
        return str(value)

    return check


def _integer(least: int) -> Callable[[str, Any], int]:
    def check(key: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise SweepError(f"{key}: {value!r} is not a whole number of {least} or more")
        return value

    return check


def _percent(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 100:
        raise SweepError(f"{key}: {value!r} is not a whole number from 0 to 99")
    return value


def _fraction(key: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise SweepError(f"{key}: {value!r} is not a number from 0 to 1")
    return float(value)


def _seconds(key: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 3600:
        raise SweepError(f"{key}: {value!r} is not a number of seconds between 0 and 3600")
    return float(value)


def _model(key: str, value: Any) -> str:
    """A known name, or the name of the model whose config.json `value` is the path of."""
    if not isinstance(value, str) or not hf_config.is_path(value):
        return _known(shapes.find)(key, value)
    try:
        return shapes.register(hf_config.from_file(value).swap_shape())
    except ValueError as error:
        raise SweepError(f"{key}: {error}") from error


def _known(look_up: Callable[[str], object]) -> Callable[[str, Any], str]:
    """A name that `look_up` accepts; its ValueError lists the known ones."""

    def check(key: str, value: Any) -> str:
        try:
            look_up(value)
        except (ValueError, TypeError, AttributeError) as error:
            raise SweepError(f"{key}: {error}") from error
        return str(value)

    return check


def _check_method(name: str) -> None:
    if name not in copy_methods.METHODS:
        raise ValueError(f"unknown copy method {name!r}; known: {', '.join(copy_methods.METHODS)}")


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "model": _many(_model),
    "dtype": _known(shapes.dtype_bytes),
    "layers": _integer(0),
    "seq_lens": _many(_integer(1)),
    "block_sizes": _many(_integer(1)),
    "layouts": _many(_known(shapes.check_layout)),
    "placements": _many(_known(run_length)),
    "methods": _many(_known(_check_method)),
    "batch": _integer(1),
    "pool_tokens": _integer(0),
    "budget_s": _seconds,
    "programs": _many(_integer(1)),
    "staging_bytes": _many(_integer(1)),
}
_COMPANY: dict[str, Callable[[str, Any], Any]] = {
    "prefill_tokens": _any_number(_integer(1)),
    "decode_batches": _any_number(_integer(1)),
    "decode_context": _integer(1),
}
# What a sweep that does not name them leaves at: a recompute in one piece, of everything.
_PLAIN = {"chunk_tokens": [0], "cached_percent": [0]}
# Axes that one table has of its own. Their defaults stand in the same table of the `quick` sweep.
_OWN: dict[str, dict[str, Callable[[str, Any], Any]]] = {
    "recompute": {"chunk_tokens": _many(_integer(0)), "cached_percent": _many(_percent)},
    "copy": {"fragment_bytes": _many(_integer(2)), "fragments": _many(_integer(1)), "max_bytes": _integer(1)},
    "ridge": {"batch_tokens": _many(_integer(1)), "matrices": _many(_integer(16)), "memory_bytes": _many(_integer(1))},
    "batching": {"policies": _many(_one_of("recompute", "swap"))} | _COMPANY,
    "preemptions": {
        "policies": _many(_one_of(*POLICIES)),
        "preemptions": _many(_integer(1)),
        "growth_tokens": _many(_integer(0)),
    },
    "hybrid": {"fractions": _many(_fraction)},
    "interference": _COMPANY,
    "resume": {"policies": _many(_one_of("recompute", "swap"))},
}
