"""Sessions on a stand-in GPU whose link and arithmetic rate are planted, and the block size at which both must tie.

Run it for the whole proof (about half a minute a session):

    python -m tests.standin.planted_crossover --seeds 20
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from analysis.basis import bases_of
from analysis.crossings import Crossover
from analysis.figure19 import Selection, panels
from analysis.load import load
from analysis.ties import BLOCK, ties
from kernels.shapes import find
from tests.running import bench

MODEL, TOKENS = "llama-3-8b", 64
COPY_S, LINK_BYTES_S, FLOPS_S = 2e-3, 1e9, 0.22e12
PLANTED = {
    "FAKEGPU_COPY_US": str(COPY_S * 1e6),
    "FAKEGPU_H2D_GBPS": str(LINK_BYTES_S / 1e9),
    "FAKEGPU_D2H_GBPS": str(LINK_BYTES_S / 1e9),
    "FAKEGPU_TFLOPS": str(FLOPS_S / 1e12),
}
SWEEP = f"""
model = "{MODEL}"
dtype = "bfloat16"
layers = 2
seq_lens = [{TOKENS // 2}, {TOKENS}]
block_sizes = [2, 4, 8]
layouts = ["layer_split"]
methods = ["memcpy_loop"]
budget_s = 0.9
[recompute]
seq_lens = [{TOKENS // 4}, {TOKENS // 2}, {3 * TOKENS // 4}, {TOKENS}]
"""


def true_tie() -> float:
    """Tokens a block at which the planted round trip and the planted recompute of the whole model take as long."""
    shape = find(MODEL)
    recompute_s = (shape.linear_flops(TOKENS) + shape.head_flops()) / FLOPS_S
    bytes_s = 2 * TOKENS * shape.kv_bytes_per_token("bfloat16") / LINK_BYTES_S
    fragments_s = 2 * TOKENS * shape.fragments_per_block("layer_split") * COPY_S  # over the tokens of a block
    return fragments_s / (recompute_s - bytes_s)


def run_session(folder: Path, seed: int) -> Path:
    """One session under the planted constants; its result file."""
    sweep, path = folder / "planted.toml", folder / f"seed-{seed}.json"
    sweep.write_text(SWEEP, encoding="utf-8")
    chosen = (f"--sweep={sweep}", f"--seed={seed}", f"--benchmark-json={path}")
    done = bench("bench/bench_swap.py", "bench/bench_recompute.py", *chosen, standin=True, **PLANTED)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return path


def reported_tie(paths: Sequence[Path]) -> Crossover:
    """What `python -m analysis crossover` reports of these sessions together."""
    frame = load([f"planted={path}" for path in paths])
    (basis,) = bases_of(panels(frame, Selection())[0], frame)
    (found,) = (
        tie.found
        for tie in ties(basis, ("round-trip",))
        if tie.question == BLOCK and tie.tokens == TOKENS and tie.found
    )
    return found


def contains(found: Crossover, truth: float) -> bool:
    """Whether the reported interval holds the truth."""
    return any(at.interval is not None and at.interval.low <= truth <= at.interval.high for at in found.crossings)


def main() -> None:
    """Print what is reported for each seed, and how often it holds the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sessions", type=int, default=1, help="sessions of each seed")
    parser.add_argument("--folder", type=Path, help="keep result files here, and take those that are there")
    chosen = parser.parse_args()
    folder, truth, held = chosen.folder or Path(tempfile.mkdtemp()), true_tie(), 0
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(chosen.seeds):
        numbers = range(seed * chosen.sessions, (seed + 1) * chosen.sessions)
        kept = [folder / f"seed-{number}.json" for number in numbers]
        paths = [
            path if path.exists() else run_session(folder, number) for path, number in zip(kept, numbers, strict=True)
        ]
        found = reported_tie(paths)
        held += contains(found, truth)
        verdict = "held" if contains(found, truth) else "missed"
        print(f"seed {seed}: {found.text}; true {truth:.4g}: {verdict}", flush=True)
    print(f"{held} of {chosen.seeds} intervals hold the truth")


if __name__ == "__main__":
    main()
