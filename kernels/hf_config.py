"""The KV cache of any Hugging Face model, from its config.json: bytes a token, or a refusal that names the field.

Plain Python: neither torch nor transformers. A field that is missing is refused, not guessed; `hf_fields` holds the few
class defaults that sparse configs rely on. What changes a cache in a way that bytes a token cannot say is refused too.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernels.hf_fields import Fields, language_fields
from kernels.hf_layers import layer_windows
from kernels.hf_shape import shape_of
from kernels.kv_layout import ConfigError, KvLayer, KvModel
from kernels.shapes import DTYPE_BYTES, ModelShape

__all__ = ["ConfigError", "KvLayer", "KvModel", "from_config", "from_file", "is_path"]

# Types whose cache is compressed, sparse or partly linear in ways that are not computed here; matched as prefixes.
REFUSED_TYPES = {
    "deepseek_v4": "a compressed KV cache",
    "kimi_k3": "linear attention beside latents",
    "kimi_linear": "linear attention beside latents",
    "minimax_m3": "sparse attention",
    "longcat_flash": "two attentions a layer",
}
# Fields that say the same of types nobody has heard of yet.
REFUSED_FIELDS = {
    "compress_ratios": "a compressed KV cache",
    "linear_attn_config": "linear attention",
    "sparse_attention_config": "sparse attention",
    "attn_type_list": "layers that differ",
    "attn_layer_indices": "layers that differ",
    "layers_block_type": "layers that differ",
    "block_types": "layers that differ",
    "block_configs": "layers that differ",
    "hybrid_layer_pattern": "layers that differ",
    "cross_attention_layers": "layers that keep the KV of an image",
    "cla_share_factor": "layers that share KV",
    "global_head_dim": "KV heads that differ from layer to layer (Gemma-4)",
    "num_global_key_value_heads": "KV heads that differ from layer to layer (Gemma-4)",
    "attention_k_eq_v": "layers whose V is their K (Gemma-4)",
    "swa_num_key_value_heads": "KV heads that differ from layer to layer",
}
# Types with as many KV heads as heads, whose configs have no field for it.
AS_MANY_AS_HEADS = ("opt", "gpt_neox", "gpt2", "gptj", "bloom")
# Types whose class gives `head_dim` a value of its own: hidden_size / heads would be wrong (Qwen3-0.6B by half).
HEAD_DIM_OF_ITS_OWN = (
    "gemma",
    "qwen3",
    "gpt_oss",
    "glm",
    "llama4",
    "cohere2_moe",
    "ernie4_5",
    "seed_oss",
    "nemotron_h",
)
LATENT_TYPES = ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm_moe_dsa", "minicpm3")
INDEXED_TYPES = ("deepseek_v32", "glm_moe_dsa")
FP8 = "float8_e4m3fn"


def is_path(name: str) -> bool:
    """Whether a model's name is meant as a path to its config: it ends in .json or has a slash."""
    return name.endswith(".json") or "/" in name


def from_file(path: str | Path) -> KvModel:
    """The model of a `config.json`, or of the folder it is in.

    It is named after the file, or after the folder where the file is called config.json.

    Raises
    ------
    ConfigError
        One line: the file cannot be read, or what `from_config` says.
    """
    path = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a JSON file: {error}") from error
    return from_config(config, _name(path))


def from_config(config: Any, name: str = "model") -> KvModel:
    """The model of a config.json that was read already.

    Parameters
    ----------
    config : dict
        The whole file, nested parts included.
    name : str
        What to call the model.

    Raises
    ------
    ConfigError
        One line that names the field that is missing or cannot be used.
    """
    fields = language_fields(config, name)
    _refuse_unknown_caches(fields)
    windows, state_layers = layer_windows(fields)
    one = _latent(fields) or _heads(fields)
    kv = [replace(one, window=window) for window in windows]
    draft = fields.count_if_given("num_nextn_predict_layers") or fields.count_if_given("mtp_num_hidden_layers")
    dtype, kv_dtype = _dtypes(fields)
    shape = shape_of(fields, kv, state_layers)
    return KvModel(
        name=name,
        kv=tuple(kv),
        dtype=dtype,
        kv_dtype=kv_dtype,
        draft_layers=draft,
        shape=shape if isinstance(shape, ModelShape) else None,
        cannot_compute="" if isinstance(shape, ModelShape) else shape,
        notes=tuple(_notes(fields, kv, state_layers, draft)),
    )


def _refuse_unknown_caches(fields: Fields) -> None:
    for kind in (str(fields.outer.get("model_type")), fields.type):
        if found := next((start for start in REFUSED_TYPES if kind.startswith(start)), None):
            raise fields.refuse("model_type", f"is {kind}: {REFUSED_TYPES[found]}, which is not computed here")
    for key, what in REFUSED_FIELDS.items():
        if fields.get(key) not in (None, False):
            raise fields.refuse(key, f"means {what}, which is not computed here")
    if fields.flag("is_encoder_decoder", default=False):
        raise fields.refuse("is_encoder_decoder", "is true: cross-attention keeps KV too, which is not computed here")


def _latent(fields: Fields) -> KvLayer | None:
    """MLA: one latent and one rotary key a token, shared by all heads (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""
    rank, mla = fields.count_if_given("kv_lora_rank"), fields.flag("use_mla", default=True)
    if rank and not mla:
        raise fields.refuse("use_mla", "is false, but kv_lora_rank is given")
    if not rank:
        if mla and (fields.type.startswith(LATENT_TYPES) or fields.count_if_given("qk_rope_head_dim")):
            raise fields.missing("kv_lora_rank", "latent attention has one")
        return None
    return KvLayer(1, rank + fields.count("qk_rope_head_dim"), latent=True, side_bytes=_indexer_bytes(fields))


def _indexer_bytes(fields: Fields) -> int:
    """DeepSeek-V3.2: a key of `index_head_dim` FP8 elements, and a float32 scale for every 128 of them."""
    sparse = fields.type.startswith(INDEXED_TYPES)
    width = fields.count("index_head_dim") if sparse else fields.count_if_given("index_head_dim")
    return width + 4 * -(-width // 128)


def _heads(fields: Fields) -> KvLayer:
    if fields.count_if_given("index_head_dim"):
        raise fields.refuse("index_head_dim", "is given without latents: that sparse cache is not computed here")
    width = _head_dim(fields)
    v_width = fields.count_if_given("v_head_dim")
    if v_width not in (0, width):
        raise fields.refuse("v_head_dim", f"is {v_width}, but K has {width} elements a head")
    return KvLayer(_kv_heads(fields), width)


def _head_dim(fields: Fields) -> int:
    if fields.get("head_dim") is not None:
        return fields.count("head_dim")
    if fields.type.startswith(HEAD_DIM_OF_ITS_OWN):
        raise fields.missing("head_dim", f"{fields.type} has one that is not hidden_size / num_attention_heads")
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    if hidden % heads:
        raise fields.missing("head_dim", f"hidden_size {hidden} is not a multiple of {heads} heads")
    return hidden // heads


def _kv_heads(fields: Fields) -> int:
    """KV heads. Falcon's `num_kv_heads` counts only where its flags say so (transformers, FalconAttention)."""
    if fields.type == "falcon":
        if fields.flag("new_decoder_architecture", default=False):
            return fields.count("num_kv_heads")
        if fields.flag("multi_query", default=True):
            return 1
        return fields.count("num_kv_heads" if fields.get("num_kv_heads") is not None else "num_attention_heads")
    if fields.type == "gpt_bigcode":
        return 1 if fields.flag("multi_query", default=True) else fields.count("num_attention_heads")
    if fields.get("num_key_value_heads") is None and fields.type in AS_MANY_AS_HEADS:
        return fields.count("num_attention_heads")
    kv_heads, heads = fields.count("num_key_value_heads"), fields.count_if_given("num_attention_heads")
    if heads % kv_heads:
        raise fields.refuse("num_key_value_heads", f"is {kv_heads}: {heads} heads cannot share them evenly")
    return kv_heads


def _dtypes(fields: Fields) -> tuple[str | None, str | None]:
    """Element types of the weights and of the KV cache."""
    dtype = _dtype(fields)
    for quantization in (fields.get("quantization_config"), fields.outer.get("quantization_config")):
        if isinstance(quantization, dict):
            for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
                if (scheme := quantization.get(key)) is not None:
                    return dtype, _scheme(fields, f"quantization_config.{key}", scheme)
    return dtype, dtype


def _dtype(fields: Fields) -> str | None:
    for values in (fields.values, fields.outer):
        for key in ("dtype", "torch_dtype"):
            if (value := values.get(key)) is not None and value != "auto":
                named = value.removeprefix("torch.") if isinstance(value, str) else value
                if not isinstance(named, str) or named not in DTYPE_BYTES:
                    raise fields.refuse(key, f"is {value!r}; known: {', '.join(DTYPE_BYTES)}")
                return named
    return None


def _scheme(fields: Fields, key: str, scheme: Any) -> str:
    """FP8 as compressed-tensors says it, {"type": "float", "num_bits": 8}, or as ModelOpt does, "FP8"."""
    if isinstance(scheme, dict) and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8):
        return FP8
    if isinstance(scheme, str) and scheme.upper() == "FP8":
        return FP8
    raise fields.refuse(key, "is a KV cache of another type than FP8, which is not computed here")


def _notes(fields: Fields, kv: list[KvLayer], state_layers: int, draft: int) -> list[str]:
    said = {
        f"{state_layers} layers keep a state of fixed size, which is not counted": state_layers,
        f"{draft} layers that predict ahead hold KV too where they run; they are not counted": draft,
        "approximate: which layers hold an indexer differs between engines": kv[0].side_bytes,
        "weights are quantized; figures of weights are those of the element type": fields.get("quantization_config")
        or fields.outer.get("quantization_config"),
    }
    return [note for note, applies in said.items() if applies]


def _name(path: Path) -> str:
    """A model's name from its path; `models--ORG--NAME/snapshots/HASH/config.json` is the Hugging Face cache."""
    found, folder = path.stem, path.resolve().parent
    if found == "config":
        cached = folder.parent.name == "snapshots"
        found = folder.parent.parent.name.rpartition("--")[2] if cached else folder.name
    return re.sub(r"[^\w.+-]+", "-", found, flags=re.ASCII).strip("-") or "model"
