"""A device with too little memory for some cases: they are skipped with what they asked for, and the others run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.running import STANDIN
from tests.standin.test_standin import output_of

pytestmark = [
    pytest.mark.standin,
    pytest.mark.skipif(not STANDIN.is_file(), reason="no stand-in GPU beside this checkout"),
]
# One layer of Llama-3-8B, its KV of 4 KiB a token and its LM head: 1.49 GB.
SWEEP = """
model = "llama-3-8b"
dtype = "bfloat16"
layers = 1
seq_lens = [64, 6144]
block_sizes = [64]
layouts = ["layer_split"]
placements = ["scattered"]
methods = ["memcpy_loop"]
budget_s = 0.1
[copy]
fragment_bytes = [4096, 1048576]
fragments = [512]
[ridge]
batch_tokens = [16]
matrices = [1024]
memory_bytes = [1048576, 1073741824]
[batching]
seq_lens = [64]
policies = ["recompute"]
prefill_tokens = [64, 6144]
decode_batches = []
"""
ASKED_AND_FREE = re.compile(r"(?:needs|of) ([\d,]+) bytes (?:of|in) device memory; ([\d,]+) are free")


def test_cases_that_do_not_fit_are_skipped_and_the_others_run(tmp_path: Path) -> None:
    output = output_of(tmp_path, SWEEP, FAKEGPU_MEM_GB="2", FAKEGPU_POISON_MB="1")
    assert output["failed"] == []
    skipped = [entry["case"] for entry in output["skipped"]]
    assert sorted((case["recovery"], case["direction"]) for case in skipped if case["recovery"] == "copy") == [
        ("copy", "both"),
        ("copy", "swap_in"),
        ("copy", "swap_out"),
    ]
    others = {(case["recovery"], case["seq_len"] or case["memory_bytes"]) for case in skipped} - {("copy", None)}
    assert others == {("recompute", 6144), ("batching", 64), ("ridge", 1073741824)}
    for entry in output["skipped"]:
        asked, free = (int(number.replace(",", "")) for number in ASKED_AND_FREE.search(entry["reason"]).groups())
        assert asked > free, entry
    assert len(output["benchmarks"]) == 3 + 4 + 1 + 3 + 2
