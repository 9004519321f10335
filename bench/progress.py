"""One readable line a case as it finishes, in place of pytest's dots, and a summary at the end."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from bench import rows
from bench.best import best_methods
from bench.machine import peak_host_bytes
from bench.rides import free_rides
from bench.session import Session
from bench.splits import best_splits

LINE = "bench_line"


class Progress:
    """Terminal output of a bench run."""

    def __init__(self, session: Session, reporter: Any) -> None:
        self._session, self._reporter = session, reporter
        self._done = 0
        self._noted: set[str] = set()
        self._reasons: set[str] = set()
        reporter.showfspath = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Any:
        """Note what becomes of a case: its line, or its reason in `skipped` or `failed`."""
        report = yield
        name = case_id(item) or ""
        case = self._session.cases.get(name)
        if case is None or name in self._noted or (report.when != "call" and report.passed):
            return report
        self._noted.add(name)
        extra_info = item.funcargs["benchmark"].extra_info if report.passed else None  # type: ignore[attr-defined]
        if extra_info:
            line = rows.line(extra_info, self._session.device.runs_at_once)
            report.user_properties.append((LINE, line + self._suspect(extra_info["suspect"])))
        elif not report.passed:
            _leave_no_number(item)
            reason, kept = _reason(call), self._session.skipped if report.skipped else self._session.failed
            kept.append({"case": case.as_dict(), "reason": reason})
            report.user_properties.append((LINE, f"{rows.title(case.as_dict())} {report.outcome.upper()}: {reason}"))
        return report

    def _suspect(self, reasons: list[str]) -> str:
        """The reasons to distrust a row, in full where they are new."""
        if not reasons:
            return ""
        new = [reason for reason in reasons if reason not in self._reasons]
        self._reasons.update(new)
        return "  suspect: " + ("; ".join(new) or "as above")

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """No dots for cases: their lines say more."""
        if LINE not in dict(report.user_properties) or report.when == "teardown":
            return None
        return report.outcome, "", "" if report.passed else report.outcome.upper()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Print the line with how many cases are left."""
        line = dict(report.user_properties).get(LINE)
        if line:
            self._done += 1
            total = len(self._session.order)
            self._reporter.ensure_newline()
            count = f"[{self._done:>{len(str(total))}}/{total}, {total - self._done} left]"
            self._reporter.write_line(f"{count} {line}", red=report.failed)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Time and memory used, what could not run and why, and what to do next."""
        session = self._session
        if not self._done:
            return
        terminalreporter.section("swap-vs-recompute")
        for title, unmeasured in (("skipped", session.skipped), ("failed", session.failed)):
            for reason, count in Counter(entry["reason"] for entry in unmeasured).most_common(5):
                terminalreporter.write_line(f"{title} {count}: {reason}")
        for line in [*best_methods(session.rows), *best_splits(session.rows), *free_rides(session.rows)]:
            terminalreporter.write_line(line)
        seconds, peak = time.monotonic() - session.started, peak_host_bytes()
        terminalreporter.write_line(f"{self._done} cases in {seconds:.1f} s; peak host memory {peak / 2**30:.2f} GiB")
        path = config.getoption("benchmark_json")
        if path and not config.getoption("benchmark_disable"):
            timed = {row["case"]["recovery"] for row in session.rows}
            next_command = "figure19" if {"swap", "recompute"} <= timed else "methods" if "copy" in timed else "schema"
            terminalreporter.write_line(f"next: python -m analysis {next_command} {path}")


def case_id(item: pytest.Item) -> str | None:
    """The id of the case that a test is about."""
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("case_id") if callspec else None
    return found if isinstance(found, str) else None  # pytest puts a placeholder where a table has no case


def _leave_no_number(item: pytest.Item) -> None:
    """pytest-benchmark writes what was timed before its test failed, unless the timing itself failed."""
    benchmark = item.funcargs.get("benchmark")  # type: ignore[attr-defined]
    if benchmark is not None:
        benchmark.has_error = True


def _reason(call: Any) -> str:
    """One line of why: a skip's own words, or the exception and its message."""
    error = call.excinfo.value
    if isinstance(error, pytest.skip.Exception):
        return str(error.msg)
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": ")
