"""The small configs of `tests/kernels/configs`: only the fields that decide the KV cache, written for these tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).with_name("configs")
REFUSED = ("gemma-4-26b", "deepseek-v4", "kimi-k3", "minimax-m3")
# Bytes a token in 16 bits: all layers, and the layers that grow beyond their window.
EXPECTED: dict[str, tuple[int, int]] = {
    "llama-2-7b": (524_288, 524_288),
    "llama-3-8b": (131_072, 131_072),
    "mistral-7b": (131_072, 131_072),
    "llama-3.1-70b": (327_680, 327_680),
    "llama-3.1-405b": (516_096, 516_096),
    "llama-3.2-1b": (32_768, 32_768),
    "llama-3.2-3b": (114_688, 114_688),
    "mixtral-8x7b": (131_072, 131_072),
    "mixtral-8x22b": (229_376, 229_376),
    "qwen2.5-3b": (36_864, 36_864),
    "qwen2.5-7b": (57_344, 57_344),
    "qwen3-0.6b": (114_688, 114_688),
    "qwen3-8b": (147_456, 147_456),
    "qwen3-14b": (163_840, 163_840),
    "qwen3-32b": (262_144, 262_144),
    "qwen3-30b-a3b": (98_304, 98_304),
    "qwen3-235b-a22b": (192_512, 192_512),
    "qwen3-vl-8b": (147_456, 147_456),
    "qwen3.5-27b": (65_536, 65_536),
    "gpt-oss-20b": (49_152, 24_576),
    "gpt-oss-120b": (73_728, 36_864),
    "gemma-3-1b": (26_624, 4_096),
    "gemma-3-4b": (139_264, 20_480),
    "gemma-3-12b": (393_216, 65_536),
    "phi-3.5-mini": (393_216, 393_216),
    "phi-4-mini": (131_072, 131_072),
    "deepseek-v2-lite": (31_104, 31_104),
    "deepseek-v2": (69_120, 69_120),
    "deepseek-v3": (70_272, 70_272),
    "kimi-k2": (70_272, 70_272),
    "deepseek-v3.2": (78_324, 78_324),
    "opt-125m": (36_864, 36_864),
    "opt-13b": (819_200, 819_200),
    "opt-175b": (4_718_592, 4_718_592),
    "gpt-neox-20b": (1_081_344, 1_081_344),
    "falcon-7b": (8_192, 8_192),
    "llama-4-scout": (196_608, 49_152),
}
# What the usual one-liner makes of the same files; None: it cannot find a field.
NAIVE: dict[str, int | None] = {
    "qwen3-0.6b": 57_344,
    "qwen3-32b": 163_840,
    "qwen3-30b-a3b": 49_152,
    "qwen3-235b-a22b": 96_256,
    "qwen3.5-27b": None,
    "qwen3-vl-8b": None,
    "gpt-oss-20b": 34_560,
    "gpt-oss-120b": 51_840,
    "gemma-3-1b": 29_952,
    "gemma-3-4b": None,
    "gemma-3-12b": None,
    "deepseek-v2-lite": 221_184,
    "deepseek-v2": 1_228_800,
    "deepseek-v3": 1_748_992,
    "opt-13b": None,
    "gpt-neox-20b": None,
}


def read(name: str) -> dict[str, Any]:
    """A fresh copy of a config."""
    config: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    return config


def text_part(config: dict[str, Any]) -> dict[str, Any]:
    """Where the language model's fields are."""
    part: dict[str, Any] = config.get("text_config", config)
    return part


def naive(config: dict[str, Any]) -> int:
    """Two x layers x KV heads x hidden / heads x 2 bytes, from the top of the file."""
    width = config["hidden_size"] // config["num_attention_heads"]
    return 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * width * 2


def config(name: str, **changed: Any) -> dict[str, Any]:
    """A config of the box with fields of its language model changed; None takes a field away."""
    found = read(name)
    part = text_part(found)
    part.update(changed)
    for key in [key for key, value in changed.items() if value is None]:
        del part[key]
    return found
