"""The fields of a Hugging Face config: where they stand, what their class gives them, and refusals that name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels.kv_layout import ConfigError

# Configs of models that also see or hear keep the language model's fields one level (Qwen-Omni: two levels) down.
NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
ALIASES = {
    "num_hidden_layers": ("n_layer", "num_layers"),
    "num_attention_heads": ("n_head",),
    "hidden_size": ("n_embd",),
}
# What transformers 5.24 gives to fields that a config leaves out: src/transformers/models/X/configuration_X.py.
# `sliding_window_pattern`: every n-th layer has no window.
CLASS_DEFAULTS: dict[str, dict[str, Any]] = {
    "opt": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12},
    "gpt_neox": {"num_hidden_layers": 44, "hidden_size": 6144, "num_attention_heads": 64},
    "falcon": {
        "num_hidden_layers": 32,
        "hidden_size": 4544,
        "num_attention_heads": 71,
        "multi_query": True,
        "new_decoder_architecture": False,
    },
    "gemma3_text": {
        "num_hidden_layers": 26,
        "hidden_size": 2304,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
    },
    "gemma2": {"sliding_window": 4096, "sliding_window_pattern": 2},
    "gpt_oss": {"sliding_window": 128, "sliding_window_pattern": 2},
    "cohere2": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "mistral": {"sliding_window": 4096},
    "llama4_text": {"attention_chunk_size": 8192, "no_rope_layer_interval": 4},
}
# A model whose outer type says what the text part, without a type of its own, is.
TEXT_TYPES = {"gemma3": "gemma3_text", "llama4": "llama4_text"}


@dataclass(frozen=True)
class Fields:
    """The language model's part of a config.

    Attributes
    ----------
    values : mapping
        Its fields, over the defaults of its class.
    outer : mapping
        The whole config.
    path : str
        Where the fields stand in it, such as "text_config."; empty at the top.
    model : str
        Name for refusals.
    """

    values: Mapping[str, Any]
    outer: Mapping[str, Any]
    path: str
    model: str

    @property
    def type(self) -> str:
        """`model_type`; empty where there is none."""
        found = self.values.get("model_type")
        return found if isinstance(found, str) else ""

    def get(self, key: str) -> Any:
        """A field under any of its names; None if it is null or not there."""
        names = (key, *ALIASES.get(key, ()))
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)

    def count(self, key: str) -> int:
        """A whole number of 1 or more; ConfigError if it is missing or anything else."""
        value = self.get(key)
        if value is None:
            raise self.missing(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refuse(key, f"is {_short(value)}; a whole number of 1 or more is expected")
        return value

    def count_if_given(self, key: str) -> int:
        """The same, or 0 where the field is missing, null or 0."""
        value = self.get(key)
        return 0 if value is None or (value == 0 and not isinstance(value, bool)) else self.count(key)

    def flag(self, key: str, default: bool) -> bool:
        """True or false; ConfigError if it is anything else."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(key, f"is {_short(value)}; true or false is expected")
        return default if value is None else value

    def missing(self, key: str, why: str = "") -> ConfigError:
        """The refusal of a config without a field."""
        return self.refuse(key, "is missing" + (f": {why}" if why else ""))

    def refuse(self, key: str, why: str) -> ConfigError:
        """The refusal of a field, in one line."""
        return ConfigError(f"{self.model}: {self.path}{key} {why}")


def language_fields(config: Any, model: str) -> Fields:
    """The part of a config that describes its language model.

    Raises
    ------
    ConfigError
        If `config` is not an object.
    """
    if not isinstance(config, Mapping):
        raise ConfigError(f"{model}: a config is a JSON object; this is {_short(config)}")
    inner, path, outer_type = config, "", config.get("model_type")
    while found := next((key for key in NESTED if inner.get(key) is not None), None):
        if not isinstance(inner[found], Mapping):
            raise ConfigError(f"{model}: {path}{found} is {_short(inner[found])}; an object is expected")
        inner, path = inner[found], f"{path}{found}."
    kind = inner.get("model_type") or (TEXT_TYPES.get(str(outer_type), outer_type) if path else None)
    values = CLASS_DEFAULTS.get(str(kind), {}) | dict(inner) | ({"model_type": kind} if kind else {})
    return Fields(values, config, path, model)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."
