"""Bytes a token against the caches that transformers fills: small models with random weights, nothing downloaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from kernels.hf_config import from_config

TOKENS = 11  # shorter than every window
SMALL = {
    "vocab_size": 32,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"num_key_value_heads": 2}),
    ("mistral", {"num_key_value_heads": 1, "head_dim": 16}),
    ("qwen2", {"num_key_value_heads": 2}),
    ("qwen3", {"num_key_value_heads": 2, "head_dim": 20}),
    ("gemma3_text", {"num_key_value_heads": 2, "head_dim": 20, "sliding_window": 32}),
    ("opt", {"ffn_dim": 32, "word_embed_proj_dim": 48}),
    ("gpt_neox", {}),
    ("falcon", {"num_kv_heads": 4}),
    ("falcon", {"num_kv_heads": 4, "multi_query": False}),
    # Not Falcon's new architecture: transformers repeats its KV heads before it keeps them, engines do not.
    (
        "qwen3_5_text",
        {
            "num_key_value_heads": 2,
            "head_dim": 24,
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
]


@pytest.mark.filterwarnings("ignore")  # of transformers, about fast kernels that are not installed
@pytest.mark.parametrize(("kind", "fields"), MODELS)
def test_the_cache_has_as_many_bytes(kind: str, fields: dict[str, Any]) -> None:
    config = SMALL | fields
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**config)).eval()
    with torch.inference_mode():
        cache = model(torch.ones((1, TOKENS), dtype=torch.int64), use_cache=True).past_key_values
    layers = [layer for layer in cache.layers if isinstance(getattr(layer, "keys", None), torch.Tensor)]
    held = sum(part.nbytes for layer in layers for part in (layer.keys, layer.values))
    found = from_config(config | {"model_type": kind})
    assert len(layers) == found.layers
    assert held == TOKENS * found.kv_bytes_per_token("float32")
