"""The questions between swap and recompute: how each is answered from rows, drawn and put into tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from analysis.contract import NothingToDraw
from analysis.figures_again import draw_preemptions, draw_resume
from analysis.figures_batching import draw_batching
from analysis.figures_hybrid import draw_hybrid
from analysis.figures_interference import draw_interference
from analysis.figures_ridge import draw_ridge
from analysis.recoveries import batching, hybrid, interference, preemptions, resume, ridge
from analysis.sheet import Sheet
from analysis.tables_recoveries import (
    batching_sheets,
    hybrid_sheets,
    interference_sheets,
    preemptions_sheets,
    resume_sheets,
    ridge_sheets,
)


class Question(NamedTuple):
    """One table of a sweep, and what its rows say.

    Attributes
    ----------
    words : str
        What is asked.
    find : callable
        The results of a frame: each has a `subject`.
    draw, sheets : callable
        A picture and tables of results; at least one must be given.
    """

    words: str
    find: Callable[[pd.DataFrame], Sequence[Any]]
    draw: Callable[[Sequence[Any]], Figure]
    sheets: Callable[[Sequence[Any]], list[Sheet]]


QUESTIONS = {
    "ridge": Question("From how many tokens on is a prefill bound by compute?", ridge, draw_ridge, ridge_sheets),
    "batching": Question(
        "What does a sequence add to a step that runs anyway?", batching, draw_batching, batching_sheets
    ),
    "preemptions": Question(
        "What if the same sequence is preempted again and again?", preemptions, draw_preemptions, preemptions_sheets
    ),
    "hybrid": Question(
        "Is it faster to compute a part while the rest is swapped in?", hybrid, draw_hybrid, hybrid_sheets
    ),
    "interference": Question(
        "How much do a swap and a step beside it slow each other down?",
        interference,
        draw_interference,
        interference_sheets,
    ),
    "resume": Question("How long is it until the next token?", resume, draw_resume, resume_sheets),
}


def answered(frame: pd.DataFrame, with_cpu: bool = False) -> dict[str, Sequence[Any]]:
    """Results of each question that the frame has rows of; those of a CPU beside GPU ones only `with_cpu`.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `analysis.load.load`.
    """
    found = {name: question.find(frame) for name, question in QUESTIONS.items()}
    if not with_cpu:
        found = {name: _gpu(results) or results for name, results in found.items()}
    return {name: results for name, results in found.items() if results}


def _gpu(results: Sequence[Any]) -> list[Any]:
    return [one for one in results if one.subject.backend != "cpu"]


def draw_all(found: dict[str, Sequence[Any]]) -> dict[str, Figure]:
    """A picture a question."""
    return {name: QUESTIONS[name].draw(results) for name, results in found.items()}


def sheets(found: dict[str, Sequence[Any]]) -> dict[str, list[Sheet]]:
    """The tables of each question."""
    return {name: QUESTIONS[name].sheets(results) for name, results in found.items()}


def missing(found: dict[str, Sequence[Any]]) -> str:
    """Which questions have no rows, and what would measure them; empty if none is missing."""
    names = [name for name in QUESTIONS if name not in found]
    if not names:
        return ""
    tables = ", ".join(f"[{name}]" for name in names)
    return f"no rows of {', '.join(names)}: measured by a sweep with the tables {tables}, such as full"


def at_least_one(found: dict[str, Sequence[Any]]) -> None:
    """Raise NothingToDraw if no question has rows."""
    if not found:
        raise NothingToDraw(missing(found))
