"""pytest plugin (`-p tests.tiny_model`): adds a model small enough to run the whole bench in seconds."""

from __future__ import annotations

from kernels.shapes import SHAPES, ModelShape

SHAPES["tiny"] = ModelShape(
    "tiny", layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=256, max_positions=128
)
SWEEP = """
model = "tiny"
dtype = "float32"
seq_lens = [32, 64]
block_sizes = [1, 16]
layouts = ["layer_split", "cross_layer"]
placements = ["scattered"]
methods = ["memcpy_loop", "torch_copy", "contiguous"]
budget_s = 0.02
[copy]
fragment_bytes = [64]
fragments = [8]
"""
