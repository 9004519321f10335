"""pytest options, fixtures, and hooks of pytest and pytest-benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bench import sweep
from bench.cases import Case, in_order
from bench.progress import Progress, case_id
from bench.session import NeverFits, Session
from kernels.copy_methods import METHODS
from kernels.device import DoesNotFit, PinRefused, default_backend

# Named on the command line it runs all the same: it is about the suite and not about a case.
collect_ignore = ["bench_harness.py"]
SESSION = pytest.StashKey[Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the suite; pytest-benchmark's own are left as they are."""
    group = parser.getgroup("swap-vs-recompute")
    group.addoption(
        "--sweep",
        metavar="NAME|FILE",
        help="what to measure: cpu, quick, figure19, full, or a .toml file (default: quick on CUDA, cpu elsewhere)",
    )
    group.addoption(
        "--model", metavar="NAME|CONFIG", help="model shape, or a Hugging Face config.json, in place of the sweep's"
    )
    group.addoption("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N (default: %(default)s)")
    group.addoption("--layers", type=int, metavar="N", help="layers to time, in place of the sweep's; 0 is all of them")
    group.addoption(
        "--seed", type=int, default=0, metavar="N", help="draws block ids and the order of cases (default: %(default)s)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what cannot give a result, before anything runs."""
    _refuse_xdist(config)
    path = config.getoption("benchmark_json")
    if path:
        _make_parent(Path(path))
    config.option.benchmark_disable_gc = True
    if not config.getoption("benchmark_columns"):
        config.option.benchmark_quiet = True  # a table of a hundred rows; our lines say more
    # Warnings are errors in tests; here one of a library we do not know yet must not cost a GPU its session.
    config.addinivalue_line("filterwarnings", "default")
    if config.option.tbstyle == "auto":
        config.option.tbstyle = "line"
    config.stash[SESSION] = _session(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Report cases in our own words."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter:
        session.config.pluginmanager.register(Progress(session.config.stash[SESSION], reporter), "swap-vs-recompute")


def _refuse_xdist(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or config.getoption("dist", "no") != "no":
        raise pytest.UsageError(
            "benchmarks do not run under pytest-xdist: workers would share one link and one GPU; drop -n"
        )


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
    except OSError as error:
        raise pytest.UsageError(f"--benchmark-json {path}: cannot be written: {error}") from error


def _session(config: pytest.Config) -> Session:
    name = config.getoption("device")
    overrides = {"model": config.getoption("model"), "layers": config.getoption("layers")}
    try:
        backend = default_backend(name)
        chosen = config.getoption("sweep") or {"cuda": "quick", "cpu": "cpu"}[backend]
        loaded = sweep.load(chosen, {key: value for key, value in overrides.items() if value is not None})
        return Session(loaded, name, config.getoption("seed"), [str(part) for part in config.invocation_params.args])
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A bench function that takes `case` gets those of its module's `TABLE`."""
    if "case_id" in metafunc.fixturenames:
        table = metafunc.config.stash[SESSION].tables.get(metafunc.module.TABLE, {})
        metafunc.parametrize("case_id", list(table), ids=list(table))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the cases of all bench files into one order."""
    session = config.stash[SESSION]
    ours = {found: item for item in items if (found := case_id(item))}
    order = in_order([session.cases[name] for name in ours], session.seed)
    items[:] = [item for item in items if not _has_no_case(item) and not case_id(item)] + [
        ours[case.id] for case in order
    ]


def _has_no_case(item: pytest.Item) -> bool:
    """The placeholder pytest makes of a bench file whose table the sweep does not have."""
    return "case_id" in getattr(item, "fixturenames", ()) and not case_id(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Number the cases that are left, and refuse lengths that no run on this machine can hold.

    A run that only lists the cases asks no device.
    """
    ours = session.config.stash[SESSION]
    ours.order = {name: place for place, name in enumerate(filter(None, map(case_id, session.items)))}
    if session.config.option.collectonly or not ours.order:
        return
    try:
        ours.check_lengths()
    except (NeverFits, ValueError) as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_header(config: pytest.Config) -> str:
    """What is about to be measured, and where."""
    session, known = config.stash[SESSION], ", ".join(METHODS)
    what = f"sweep {session.sweep.name}, backend {default_backend(session.device_name)}, seed {session.seed}"
    return f"swap-vs-recompute: {what}, copy methods {known}"


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Add the GPU, the link, the host and the software; take the host's name away."""
    machine_info.pop("node", None)
    machine_info.update(config.stash[SESSION].machine())


def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Add the session, and the cases that left no number."""
    config.stash[SESSION].add_to(output_json)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """pytest-benchmark writes nothing where no case left a number: write the skipped and failed ones all the same."""
    plugin = session.config._benchmarksession  # type: ignore[attr-defined]
    ours = session.config.stash[SESSION]
    if plugin.json and not plugin.disabled and not plugin.benchmarks and (ours.skipped or ours.failed):
        hook = session.config.hook
        output = hook.pytest_benchmark_generate_json(
            config=session.config,
            benchmarks=[],
            include_data=True,
            machine_info=plugin.get_machine_info(),
            commit_info=hook.pytest_benchmark_generate_commit_info(config=session.config),
        )
        hook.pytest_benchmark_update_json(config=session.config, benchmarks=[], output_json=output)
        plugin.save_json(output)


@pytest.fixture(scope="session")
def bench_session(request: pytest.FixtureRequest) -> Session:
    """The run: device, memory, and the ceilings measured so far."""
    return request.config.stash[SESSION]


@pytest.fixture
def case(case_id: str, bench_session: Session) -> Case:
    """The case this test times."""
    return bench_session.cases[case_id]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """A case that the machine has no room for is skipped with the reason, not failed."""
    try:
        return (yield)
    except (DoesNotFit, PinRefused, torch.OutOfMemoryError) as refusal:
        pytest.skip(next(iter(str(refusal).splitlines()), type(refusal).__name__))
