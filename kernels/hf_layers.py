"""Which layers of a Hugging Face model hold KV, and within which window."""

from __future__ import annotations

from typing import Literal, TypeAlias

from kernels.hf_fields import Fields

Kind: TypeAlias = Literal["full", "window", "chunk", "state"]
# Values of `layer_types` in transformers 5.24, and of older configs; every other one is refused.
KINDS: dict[str, Kind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "chunked_attention": "chunk",
    "linear_attention": "state",
    "mamba": "state",
    "conv": "state",
}
MOST_LAYERS = 10_000  # a list of more is a typing error that would fill the memory
NEMOTRON_H: dict[str, Kind] = {"*": "full", "M": "state", "-": "state", "E": "state"}
# Classes that give `sliding_window` to every layer.
WINDOW_EVERYWHERE = ("mistral", "mixtral", "phi3", "phimoe", "phi4_multimodal", "starcoder2")
HYBRID_TYPES = (
    "qwen3_5",
    "qwen3_next",
    "jamba",
    "bamba",
    "nemotron_h",
    "lfm2",
    "granitemoehybrid",
    "zamba",
    "falcon_h1",
)
# Fields of layers that keep a state of fixed size; which layers they are must then be said.
STATE_PREFIXES = ("mamba_", "ssm_", "linear_num_", "linear_key_", "linear_conv_")


def layer_windows(fields: Fields) -> tuple[list[int | None], int]:
    """The window (None: none) of each layer that holds KV, and the number of layers that keep a fixed state.

    Raises
    ------
    ConfigError
        If the config does not say which layers hold KV, or says it in words that are not known.
    """
    layers = fields.count("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise fields.refuse("num_hidden_layers", f"is {layers}; at most {MOST_LAYERS} are expected")
    kinds = _kinds(fields, layers)
    shared = fields.count_if_given("num_kv_shared_layers")  # the last layers read the KV of earlier ones (Gemma-3n)
    if shared >= layers:
        raise fields.refuse("num_kv_shared_layers", f"is {shared}; there are {layers} layers")
    held = [kind for kind in kinds[: layers - shared] if kind != "state"]
    if not held:
        raise fields.refuse("layer_types", "has no layer that holds KV")
    windows: dict[Kind, int | None] = {"full": None}
    if "window" in held:
        windows["window"] = _window(fields)
    if "chunk" in held:
        windows["chunk"] = fields.count("attention_chunk_size")
    return [windows[kind] for kind in held], kinds.count("state")


def _kinds(fields: Fields, layers: int) -> list[Kind]:
    if fields.get("layer_types") is not None:
        return _named(fields, layers)
    if fields.get("hybrid_override_pattern") is not None:
        return _pattern(fields, layers)
    if fields.get("full_attention_interval") is not None:  # Qwen3-Next, Qwen3.5
        every = fields.count("full_attention_interval")
        return ["state" if number % every else "full" for number in range(1, layers + 1)]
    if fields.get("attn_layer_period") is not None:  # Jamba
        every, offset = fields.count("attn_layer_period"), fields.count_if_given("attn_layer_offset")
        return ["full" if number % every == offset else "state" for number in range(layers)]
    if fields.type.startswith(HYBRID_TYPES):
        raise fields.missing("layer_types", f"not all layers of {fields.type} hold KV")
    for key in fields.values:
        if str(key).startswith(STATE_PREFIXES) and fields.get(key) is not None:
            raise fields.missing("layer_types", f"with {key}, some layers hold no KV")
    return _chunked(fields, layers) or _sliding(fields, layers)


def _named(fields: Fields, layers: int) -> list[Kind]:
    names = fields.get("layer_types")
    if not isinstance(names, list) or len(names) != layers:
        has = len(names) if isinstance(names, list) else 0
        raise fields.refuse("layer_types", f"names {has} layers; there are {layers}")
    for name in names:
        if not isinstance(name, str) or name not in KINDS:
            raise fields.refuse("layer_types", f"has {name!r}; known: {', '.join(KINDS)}")
    return [KINDS[name] for name in names]


def _pattern(fields: Fields, layers: int) -> list[Kind]:
    pattern = fields.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or len(pattern) != layers or set(pattern) - set(NEMOTRON_H):
        raise fields.refuse("hybrid_override_pattern", f"is not {layers} letters of {' '.join(NEMOTRON_H)}")
    return [NEMOTRON_H[letter] for letter in pattern]


def _chunked(fields: Fields, layers: int) -> list[Kind]:
    """Llama-4: layers with rotary positions (1 in `no_rope_layers`) see their chunk only."""
    if fields.get("attention_chunk_size") is None:
        return []
    if fields.type != "llama4_text":
        raise fields.missing("layer_types", "attention_chunk_size does not say which layers are chunked")
    every = fields.count("no_rope_layer_interval")
    rotary = fields.get("no_rope_layers") or [int(number % every != 0) for number in range(1, layers + 1)]
    if not isinstance(rotary, list) or len(rotary) != layers:
        raise fields.refuse("no_rope_layers", f"is not a list of {layers} layers")
    return ["chunk" if chunked else "full" for chunked in rotary]


def _sliding(fields: Fields, layers: int) -> list[Kind]:
    if fields.get("sliding_window") is None or _window(fields) is None:
        return ["full"] * layers
    if fields.get("sliding_window_pattern") is not None:
        every = fields.count("sliding_window_pattern")
        return ["window" if number % every else "full" for number in range(1, layers + 1)]
    if fields.get("max_window_layers") is not None:  # Qwen2: the first of them have no window
        first = fields.count_if_given("max_window_layers")
        return ["full" if number < first else "window" for number in range(layers)]
    if fields.type in WINDOW_EVERYWHERE:
        return ["window"] * layers
    raise fields.missing("layer_types", "sliding_window does not say which layers have it")


def _window(fields: Fields) -> int | None:
    """`sliding_window`; None where it is switched off or no shorter than the longest sequence.

    Classes of Qwen leave it off unless `use_sliding_window` is true.
    """
    if not fields.flag("use_sliding_window", default=not fields.type.startswith(("qwen2", "qwen3"))):
        return None
    window, longest = fields.count("sliding_window"), fields.count_if_given("max_position_embeddings")
    return None if longest and window >= longest else window
