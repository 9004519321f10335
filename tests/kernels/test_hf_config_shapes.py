"""What of a config can be computed and what only swapped, and how its file names the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernels import shapes
from kernels.hf_config import ConfigError, from_config, from_file
from tests.kernels.hf_configs import CONFIGS, EXPECTED, config, read


@pytest.mark.parametrize("name", ["llama-3-8b", "mistral-7b", "opt-13b", "qwen3-8b"])
def test_our_own_shapes_come_out_of_their_configs(name: str) -> None:
    found = from_file(CONFIGS / f"{name}.json")
    assert found.shape == shapes.find(name)
    assert found.cannot_compute == ""
    for layout in shapes.LAYOUTS:
        assert found.fragment_bytes(layout, 16, "bfloat16") == found.shape.fragment_bytes(layout, 16, "bfloat16")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (config("mixtral-8x7b"), "mixture of experts"),
        (config("qwen2.5-7b"), "QKV biases"),
        (config("gemma-3-1b"), "attention within a window of 512 tokens"),
        (config("qwen3.5-27b"), "linear attention"),
        (config("falcon-7b"), "model type falcon; computed: llama"),
        (config("llama-3-8b", attention_bias=True), "QKV biases"),
        (config("llama-3-8b", hidden_act="gelu"), "not SiLU"),
        (config("llama-3-8b", vocab_size=None), "vocab_size is missing"),
        (config("llama-3-8b", rms_norm_eps="small"), "rms_norm_eps is 'small'"),
        (config("opt-13b", word_embed_proj_dim=512), "narrower than the layers"),
        (config("opt-13b", do_layer_norm_before=False), "norms after attention"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_computed_says_why_and_keeps_its_bytes(changed: dict[str, Any], reason: str) -> None:
    found = from_config(changed)
    assert found.shape is None
    assert reason in found.cannot_compute
    assert found.kv_bytes_per_token("bfloat16") > 0


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "deepseek-v3.2"])
def test_what_is_swapped_has_the_same_bytes_and_pieces(name: str) -> None:
    model = from_file(CONFIGS / f"{name}.json")
    shape = model.swap_shape()
    assert shape.name == name
    assert bool(shape.swap_only) == (model.shape is None)
    assert shape.kv_bytes_per_token("bfloat16") == model.kv_bytes_per_token("bfloat16")
    for layout in shapes.LAYOUTS:
        assert shape.fragments_per_block(layout) == model.fragments_per_block(layout)
        assert shape.fragment_bytes(layout, 16, "bfloat16") == model.fragment_bytes(layout, 16, "bfloat16")


def test_layers_that_differ_cannot_be_swapped_and_have_no_one_fragment() -> None:
    sparse = from_config(config("deepseek-v3.2"), "sparse")
    with pytest.raises(ConfigError, match="sparse: cannot be swapped here"):
        sparse.swap_shape()
    assert sparse.fragment_bytes("layer_joined", 16, "bfloat16") is None
    assert sparse.fragment_bytes("cross_layer", 16, "bfloat16") == 16 * 78_324


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("Some-Model.json", "Some-Model"),
        ("Some-Model/config.json", "Some-Model"),
        ("models--org--Some-Model/snapshots/0123abc/config.json", "Some-Model"),
        ("an odd [name].json", "an-odd-name"),
    ],
)
def test_names_come_from_files_or_folders(tmp_path: Path, path: str, name: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(read("llama-3-8b")), encoding="utf-8")
    assert from_file(file).name == name
    if file.name == "config.json":
        assert from_file(file.parent).name == name


@pytest.mark.parametrize(("content", "message"), [("{", "not a JSON file"), ("[]", "a config is a JSON object")])
def test_files_that_are_no_configs(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        from_file(file)
    with pytest.raises(ConfigError, match="No such file"):
        from_file(tmp_path / "absent.json")
