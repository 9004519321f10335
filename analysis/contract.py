"""One result file: found, parsed, and held to `results/schema.json`. Every refusal is a `BadFile` of one line.

pytest-benchmark leaves an empty file when nothing ran, keeps rows of failed tests, and other suites write the same
kind of file; each of these gets a sentence of its own, because "schema violation" would send the reader the wrong way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

SCHEMA_PATH = Path(__file__).resolve().parents[1] / "results" / "schema.json"
SCHEMA = 1
CLOCKS = ("wall_s", "issue_s", "device_s")
BLOCK_AXES = ("layout", "placement", "block_size")
MODEL_AXES = ("model", "dtype", "layers_timed", "layers_model", "seq_len", "batch")
COPY_AXES = ("direction", "method", "fragment_bytes", "fragments")
SWAP_AXES = ("direction", "method", *BLOCK_AXES)
PROBE_AXES = {"prefill": MODEL_AXES, "gemm": ("matrix", "dtype"), "memory": ("memory_bytes",)}


class BadFile(ValueError):
    """A result file that no number may be taken from. The message is one line: which file, and what is wrong."""

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(" ".join(f"{path}: {problem}".split()))


class NothingToDraw(ValueError):
    """The files are fine, yet hold no such comparison. The message is one line: what is missing, and what there is."""


@dataclass(frozen=True)
class ResultFile:
    """A file that holds to the contract.

    Attributes
    ----------
    path : pathlib.Path
        Where it was read from.
    label : str or None
        The user's name for its machine (`label=path`).
    document : dict
        The parsed JSON.
    """

    path: Path
    label: str | None
    document: dict[str, Any]


def read(specs: str | Path | Iterable[str | Path]) -> list[ResultFile]:
    """Read and check every file that `specs` (paths, globs, `label=path`, `label=glob`) name, each once.

    Raises
    ------
    BadFile
        If a path is missing, a glob matches nothing, or a file breaks the contract.
    """
    return [ResultFile(path, label, read_document(path)) for label, path in expand(specs)]


def expand(specs: str | Path | Iterable[str | Path]) -> list[tuple[str | None, Path]]:
    """(label or None, path) of everything `specs` name, each once, in order. BadFile if a glob matches nothing."""
    specs = [specs] if isinstance(specs, str | Path) else specs
    named = [pair for spec in specs for pair in _expand(str(spec))]
    once = list({(label, path.absolute()): (label, path) for label, path in named}.values())
    # `results/*.json` names the contract too, here or in another checkout.
    return [(label, path) for label, path in once if path.name != SCHEMA_PATH.name] or once


def _expand(spec: str) -> Iterator[tuple[str | None, Path]]:
    label, equals, pattern = spec.partition("=")
    if not equals or "/" in label or not label or Path(spec).exists():
        label, pattern = "", spec
    path = Path(pattern)
    if path.exists() or not any(mark in pattern for mark in "*?["):
        yield label or None, path
        return
    matches = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
    if not matches:
        raise BadFile(pattern, "no file matches")
    yield from ((label or None, match) for match in matches)


def read_document(path: Path) -> dict[str, Any]:
    """Parse one file and hold it to the contract.

    Raises
    ------
    BadFile
        With the place and the expectation of the first thing that is wrong.
    """
    document = _parse(path, _text(path))
    _check_origin(path, document)
    error = next(_validator().iter_errors(document), None)
    if error is not None:
        raise BadFile(path, f"at {error.json_path}: {_expectation(error)}")
    _check_machine(path, document)
    for index, row in enumerate(document["benchmarks"]):
        _check_row(path, f"benchmarks[{index}] ({row['name']})", row, document["session"]["id"])
    return document


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadFile(path, "no such file") from None
    except UnicodeDecodeError as error:
        raise BadFile(path, f"not JSON: not UTF-8 text at byte {error.start}") from None
    except (OSError, ValueError) as error:
        raise BadFile(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not text.strip():
        raise BadFile(path, "empty file: benchmarks were disabled or none ran")
    return text


class _NotANumber(ValueError):
    """A number that JSON or a double does not have."""


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_constant=_refuse, parse_float=_float, parse_int=_int)
    except json.JSONDecodeError as error:
        end = "cut short" if error.pos >= len(text.rstrip()) else "not JSON"
        raise BadFile(path, f"{end}: {error.msg} at line {error.lineno} column {error.colno}") from None
    except _NotANumber as error:
        raise BadFile(path, f"holds {error}, which is not a JSON number: a measurement is missing there") from None
    except RecursionError:
        raise BadFile(path, "not a result file: nested too deeply") from None
    if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), list):
        raise BadFile(path, "not a pytest-benchmark file: no list 'benchmarks' at the top level")
    return document


def _refuse(text: str) -> float:
    raise _NotANumber(text)


def _float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _int(text: str) -> int:
    return int(text) if len(text) < 19 else int(_refuse(f"the {len(text)}-digit number {text[:12]}..."))


def _check_origin(path: Path, document: dict[str, Any]) -> None:
    """Refuse files of other suites, of a later version, and files that dropped their rounds."""
    version = document.get("schema")
    if isinstance(version, int) and version > SCHEMA:
        raise BadFile(path, f"schema {version} is newer than the {SCHEMA} known here; update swap-vs-recompute")
    for index, row in enumerate(document["benchmarks"]):
        name = f"benchmarks[{index}]" + (f" ({row['name']})" if isinstance(row, dict) and "name" in row else "")
        extra, stats = (row.get(key) if isinstance(row, dict) else None for key in ("extra_info", "stats"))
        if not isinstance(extra, dict) or "case" not in extra:
            raise BadFile(path, f"not from this suite: no extra_info.case in {name}")
        data = stats.get("data") if isinstance(stats, dict) else None
        if not isinstance(data, list) or not data:
            raise BadFile(path, f"stats.data is missing in {name}: use --benchmark-json, which keeps every round")
        if not _plain_numbers(data):
            raise BadFile(path, f"stats.data of {name} holds something other than numbers of seconds")


def _plain_numbers(values: list[Any]) -> bool:
    return set(map(type, values)) <= {int, float}


def _fast_items(validator: Validator, items: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """`items` for long arrays of numbers: numpy finds that all is well, the plain keyword finds what is not."""
    simple = isinstance(items, dict) and items.get("type") == "number" and items.keys() <= {"type", "minimum"}
    if simple and isinstance(instance, list) and _plain_numbers(instance):
        least = items.get("minimum", -math.inf)
        if (np.asarray(instance, dtype=float) >= least).all():
            return
    yield from Draft202012Validator.VALIDATORS["items"](validator, items, instance, schema)


@cache
def _validator() -> Validator:
    contract = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    fast: type[Validator] = extend(Draft202012Validator, {"items": _fast_items})  # type: ignore[no-untyped-call]
    return fast(contract)


def _expectation(error: ValidationError) -> str:
    if error.validator in ("required", "additionalProperties"):
        return error.message[:200]
    found = repr(error.instance)
    found = found if len(found) <= 60 else found[:57] + "..."
    return f"expected {error.validator} {error.validator_value!r}, found {found}"


def _check_machine(path: Path, document: dict[str, Any]) -> None:
    machine = document["machine_info"]
    if (machine["backend"] == "cuda") != (machine["gpu"] is not None):
        raise BadFile(path, f"machine_info: backend {machine['backend']!r} with gpu {machine['gpu']!r}"[:160])


def _check_row(path: Path, name: str, row: dict[str, Any], session: str) -> None:
    """What the schema cannot say: clocks of equal length, axes that a recovery needs, a baseline where one belongs."""
    info = row["extra_info"]
    case, clocks = info["case"], info["clocks"]
    _check_rounds(path, name, clocks, {"stats.data": row["stats"]["data"]})
    if not np.allclose(row["stats"]["data"], clocks["wall_s"], rtol=0.01, atol=1e-3):
        raise BadFile(path, f"{name}: stats.data and clocks.wall_s tell different times of the same rounds")
    if info["session"] != session:
        raise BadFile(path, f"{name}: session {info['session']!r} in a file of session {session!r}")
    if missing := _missing(case, info["work"]):
        raise BadFile(path, f"{name}: recovery {case['recovery']!r} without {', '.join(missing)}")
    if case["layers_timed"] is not None and case["layers_timed"] > (case["layers_model"] or 0):
        raise BadFile(path, f"{name}: {case['layers_timed']} layers timed of a model of {case['layers_model']}")
    _check_baseline(path, name, info)


def _missing(case: dict[str, Any], work: dict[str, Any]) -> list[str]:
    missing = [axis for axis in _needed(case) if case.get(axis) is None]
    computes = case["recovery"] == "ridge" and case.get("probe") != "memory"
    return missing + (["flops"] if computes and not work["flops"] else [])


def _check_rounds(path: Path, name: str, clocks: dict[str, Any], beside: dict[str, Any]) -> None:
    """As many values of each clock as of what stands beside, and wall clocks that ran."""
    rounds = {clock: len(clocks[clock]) for clock in CLOCKS} | {other: len(data) for other, data in beside.items()}
    if len(set(rounds.values())) > 1:
        raise BadFile(path, f"{name}: one value a round expected, found {rounds}")
    if min(clocks["wall_s"]) <= 0:
        raise BadFile(path, f"{name}: a wall clock of 0 s; the round was not timed")


def _check_baseline(path: Path, name: str, info: dict[str, Any]) -> None:
    case, baseline = info["case"], info.get("baseline")
    paired = case["recovery"] in ("batching", "interference") and case.get("company") is not None
    if paired and baseline is None:
        raise BadFile(path, f"{name}: recovery {case['recovery']!r} beside a {case['company']} without its baseline")
    if baseline is None:
        return
    if not paired:
        raise BadFile(path, f"{name}: a baseline where recovery {case['recovery']!r} has no company")
    _check_rounds(path, f"{name}, baseline", baseline, {"clocks.wall_s": info["clocks"]["wall_s"]})


def _needed(case: dict[str, Any]) -> tuple[str, ...]:
    """Axes that must not be null. Copies and some probes are of no model; a ceiling, one large copy, has no blocks."""
    recovery, swapped = case["recovery"], case.get("policy") in ("swap", "swap_kept")
    if recovery == "copy":
        return COPY_AXES
    if recovery == "swap":
        ceiling = case["method"] == "contiguous" and not any(case[axis] for axis in BLOCK_AXES)
        return ("direction", "method", *(() if ceiling else BLOCK_AXES), *MODEL_AXES)
    if recovery == "ridge":
        return ("probe", *PROBE_AXES.get(case.get("probe") or "", ()))
    own = {
        "recompute": (),
        "batching": ("policy", *_company(case), *(SWAP_AXES if swapped else ())),
        "preemptions": ("policy", "preemptions", "growth_tokens", *(("method", *BLOCK_AXES) if swapped else ())),
        "hybrid": ("fraction", *SWAP_AXES),
        "interference": ("timed", "company", *_company(case), *SWAP_AXES),
        "resume": ("policy", *(SWAP_AXES if swapped else ())),
    }
    return (*own[recovery], *MODEL_AXES)


def _company(case: dict[str, Any]) -> tuple[str, ...]:
    """Axes that say how large the company is."""
    sizes = {"prefill": ("company_size",), "decode": ("company_size", "company_context")}
    return sizes.get(case.get("company") or "", ())
