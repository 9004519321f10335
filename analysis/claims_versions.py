"""Claims about versions of engines: facts of their code and threads, judged by those and by no measurement."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis.claim_types import Answer, Claim, Need, Verdict

ARTICLE = "article, section on vLLM's implementation"


def fact(verdict: Answer, where: str, because: str, source: str) -> Callable[[Claim, pd.DataFrame], list[Verdict]]:
    """A judge that says what `source` settles."""

    def judge(claim: Claim, _: pd.DataFrame) -> list[Verdict]:
        return [claim.says(verdict, because, origin=f"published ({source})", where=where)]

    return judge


VERSION_CLAIMS = (
    Claim(
        id="vllm-preemption-mode-flag",
        words="vLLM switches between the two by --preemption-mode",
        source=ARTICLE,
        claimed="flag exists",
        unit="",
        test="the options of a vLLM release",
        on_record=fact(
            Answer.REFUTED,
            "vLLM >= 0.11",
            "The flag is present in 0.9.2 and 0.10.2 and absent from 0.11.0; in V1 it made the engine fall back to V0.",
            "vLLM 0.10.2 and 0.11.0 arg_utils.py; vllm#18115",
        ),
    ),
    Claim(
        id="vllm-swap-space-flag",
        words="swap mode also needs --swap-space",
        source=ARTICLE,
        claimed="flag exists",
        unit="",
        test="the options of a vLLM release",
        on_record=fact(
            Answer.REFUTED,
            "vLLM >= 0.18",
            "The flag is present through 0.17.1 and gone from 0.18.0; in V1 it was accepted and never used.",
            "vllm PR #36216; unsloth-zoo#1210; vllm#27984",
        ),
    ),
    Claim(
        id="vllm-swap-space-default",
        words="--swap-space defaults to 4 GB",
        source=ARTICLE,
        claimed="4",
        unit="GiB a GPU",
        test="the options of a vLLM release",
        on_record=fact(
            Answer.DEPENDS,
            "V0: holds; V1: unused; >= 0.18: no such flag",
            "It depends on the version: 4 GiB a GPU, pinned at start, in V0; unused in V1; no such flag since 0.18.",
            "vLLM V0 arg_utils.py; vllm#27984; vllm PR #36216",
        ),
    ),
    Claim(
        id="vllm-v1-recomputes",
        words="V1 made recompute the default",
        source="article, opening",
        claimed="recompute",
        unit="",
        test="the scheduler of a vLLM release",
        on_record=fact(
            Answer.CONFIRMED,
            "vLLM V1",
            "V1 always recomputes a preempted request, unless an offloading connector has its cache to reload.",
            "vllm#18115; vllm PR #29870",
        ),
    ),
    Claim(
        id="vllm-v1-ipc",
        words="coordinating block movement over IPC offsets swap's advantage in V1",
        source=ARTICLE,
        claimed="IPC cost >= swap's gain",
        unit="",
        test="time of one scheduler-to-worker message beside the difference of recompute and swap, in a serving engine",
        needs=(Need("a serving engine, which no bench of this suite runs", "swap", note="time of messages of V1"),),
    ),
    Claim(
        id="sglang-recomputes",
        words="SGLang falls back to recompute when preemption occurs",
        source=ARTICLE,
        claimed="recompute",
        unit="",
        test="the scheduler of an SGLang release",
        on_record=fact(
            Answer.CONFIRMED,
            "SGLang",
            "SGLang retracts running requests and computes them again.",
            "SGLang retract_decode, --schedule-conservativeness",
        ),
    ),
)
