"""The ModelShape of a Hugging Face model, or why `kernels.transformer` cannot compute it."""

from __future__ import annotations

from typing import Any, Literal

from kernels.hf_fields import Fields
from kernels.kv_layout import KvLayer
from kernels.shapes import ModelShape

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
COMPUTED = ("llama", "mistral", "qwen3", "opt")
# Switches that must stand as they do in the models our stack computes, and what it is called where they do not.
# Their defaults are those of transformers 5.24.
SWITCHES: dict[str, tuple[tuple[str, object, str], ...]] = {
    "opt": (
        ("do_layer_norm_before", True, "norms after attention"),
        ("enable_bias", True, "linear layers without biases"),
        ("layer_norm_elementwise_affine", True, "norms without weights"),
        ("activation_function", "relu", "an activation that is not ReLU"),
        ("tie_word_embeddings", True, "an LM head of its own"),
    ),
    "rotary": (
        ("attention_bias", False, "QKV biases"),
        ("mlp_bias", False, "MLP biases"),
        ("hidden_act", "silu", "an activation that is not SiLU"),
    ),
}


def shape_of(fields: Fields, kv: list[KvLayer], state_layers: int) -> ModelShape | str:
    """What our stack computes, or the reason why it cannot.

    Takes the name, the KV heads and their width from what was found of the KV cache. `rope_theta` and the norms'
    epsilon do not change the time a prefill takes; where they are missing they have the values of LlamaConfig.
    """
    if reason := _obstacle(fields, kv, state_layers):
        return reason
    opt = fields.type == "opt"
    sizes = {"hidden": "hidden_size", "heads": "num_attention_heads", "ffn": "ffn_dim" if opt else "intermediate_size"}
    sizes |= {"vocab": "vocab_size", "max_positions": "max_position_embeddings"}
    try:
        found: dict[str, Any] = {name: fields.count(key) for name, key in sizes.items()}
        if opt and fields.count_if_given("word_embed_proj_dim") not in (0, found["hidden"]):
            return "embeddings narrower than the layers (word_embed_proj_dim)"
        tied = fields.flag("tie_word_embeddings", default=opt)
        common = found | {"layers": len(kv), "kv_heads": kv[0].kv_heads, "head_dim": kv[0].width, "tied_head": tied}
        return ModelShape(fields.model, **common, **(_opt() if opt else _rotary(fields)))
    except ValueError as error:
        return str(error).removeprefix(f"{fields.model}: ")


def _obstacle(fields: Fields, kv: list[KvLayer], state_layers: int) -> str:
    if kv[0].latent:
        return "latent attention (MLA)"
    if any(fields.get(key) not in (None, 0) for key in EXPERTS):
        return "mixture of experts"
    if state_layers:
        return "layers of linear attention or state space"
    if windows := {layer.window for layer in kv} - {None}:
        return f"attention within a window of {max(window for window in windows if window)} tokens"
    if fields.type.startswith("qwen2"):
        return "QKV biases"
    if fields.type not in COMPUTED:
        return f"model type {fields.type or 'unknown'}; computed: {', '.join(COMPUTED)}"
    for key, expected, otherwise in SWITCHES["opt" if fields.type == "opt" else "rotary"]:
        if fields.get(key) not in (None, expected):
            return f"{otherwise} ({key})"
    return ""


def _opt() -> dict[str, Any]:
    mlp: Literal["plain"] = "plain"
    return {"mlp": mlp, "norm": "layer", "positions": "learned", "biases": True}


def _rotary(fields: Fields) -> dict[str, Any]:
    nested = fields.get("rope_parameters")
    theta = (nested.get("rope_theta") if isinstance(nested, dict) else None) or fields.get("rope_theta") or 10_000.0
    eps = fields.get("rms_norm_eps") or 1e-6
    for key, value in (("rope_theta", theta), ("rms_norm_eps", eps)):
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise fields.refuse(key, f"is {value!r}; a number above 0 is expected")
    return {"qk_norm": fields.type == "qwen3", "rope_theta": float(theta), "norm_eps": float(eps)}
