"""Configs with anything missing or wrong: the right bytes, or one line that names the field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING

from kernels.hf_config import ConfigError, KvModel, from_config
from kernels.hf_fields import CLASS_DEFAULTS
from tests.kernels.hf_configs import EXPECTED, REFUSED, read, text_part

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WRONG = [0, -1, 1.5, "8", True, [], [8], {}, {"n": 8}]
COUNTS = ("num_hidden_layers", "num_key_value_heads", "head_dim", "kv_lora_rank", "qk_rope_head_dim")


def essential(name: str) -> list[str]:
    """Fields of a config that its class has no default for."""
    part = text_part(read(name))
    return [key for key in part if key not in CLASS_DEFAULTS.get(part["model_type"], {}) and key != "model_type"]


def answer(config: Any) -> KvModel | str:
    """The model, or its refusal in one line; anything else that is raised fails the test."""
    try:
        found = from_config(config)
    except ConfigError as refusal:
        line = str(refusal)
        assert_one_line(line)
        return line
    assert found.kv_bytes_per_token("bfloat16") >= found.kv_bytes_per_token_growing("bfloat16") >= 0
    return found


def assert_one_line(text: str) -> None:
    assert text
    assert "\n" not in text


@given(st.data(), st.sampled_from([name for name in EXPECTED if essential(name)]))
def test_a_missing_field_is_named_or_was_not_needed(data: st.DataObject, name: str) -> None:
    config = read(name)
    part = text_part(config)
    gone = data.draw(st.sets(st.sampled_from(essential(name)), min_size=1))
    for key in gone:
        del part[key]
    found = answer(config)
    if isinstance(found, str):
        assert any(f"{key} is missing" in found for key in gone)
    else:
        assert found.kv_bytes_per_token("bfloat16") == EXPECTED[name][0]


@pytest.mark.parametrize("key", COUNTS)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_missing_size_is_refused_by_its_name(name: str, key: str) -> None:
    config = read(name)
    part = text_part(config)
    quotient = key == "head_dim" and part["model_type"] in ("llama", "mistral", "phi3", "mixtral")
    if key not in essential(name) or quotient or (key == "num_key_value_heads" and "kv_lora_rank" in part):
        return
    del part[key]
    with pytest.raises(ConfigError, match=rf"{name}: .*{key} is missing"):
        from_config(config, name)


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("name", ["llama-3-8b", "qwen3-vl-8b", "gpt-oss-20b", "deepseek-v3", "gemma-3-12b"])
def test_a_wrong_value_is_named(name: str, value: Any) -> None:
    for key in COUNTS:
        config = read(name)
        part = text_part(config)
        if key not in part or (key == "num_key_value_heads" and "kv_lora_rank" in part):
            continue
        part[key] = value
        with pytest.raises(ConfigError, match=key) as refusal:
            from_config(config, name)
        assert "\n" not in str(refusal.value)


@given(st.data(), st.sampled_from([*EXPECTED, *REFUSED]), JSON)
def test_nothing_in_any_field_is_a_traceback(data: st.DataObject, name: str, value: Any) -> None:
    config = read(name)
    where = data.draw(st.sampled_from([config, text_part(config)]))
    where[data.draw(st.sampled_from(list(where)))] = value
    answer(config)


@given(JSON)
def test_nothing_at_all_is_a_traceback(config: Any) -> None:
    answer(config)


@pytest.mark.parametrize("kind", CLASS_DEFAULTS)
def test_class_defaults_are_those_of_transformers(kind: str) -> None:
    theirs = CONFIG_MAPPING[kind]()
    known = ("num_hidden_layers", "num_attention_heads", "hidden_size", "num_key_value_heads", "head_dim")
    given_ = {key: value for key in known if (value := getattr(theirs, key, None)) is not None}
    given_ = {key: value for key, value in given_.items() if key not in CLASS_DEFAULTS[kind]}
    found = from_config({"model_type": kind} | (given_ if "num_hidden_layers" not in CLASS_DEFAULTS[kind] else {}))
    for key, value in CLASS_DEFAULTS[kind].items():
        if key != "sliding_window_pattern":
            assert getattr(theirs, key) == value
    assert found.layers == theirs.num_hidden_layers
    width = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert {layer.width for layer in found.kv} == {width}
    types = getattr(theirs, "layer_types", None) or ["sliding_attention" if kind == "mistral" else "full_attention"]
    windows = [layer.window is None for layer in found.kv]
    assert windows == [what == "full_attention" for what in types] * (found.layers // len(types))
