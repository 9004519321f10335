"""Small Hugging Face models with random weights, and the same weights as ours.

Nothing is downloaded: a model is built from its configuration class.
"""

from __future__ import annotations

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from kernels.shapes import ModelShape
from kernels.weights import Affine, LayerWeights, Weights

SMALL = {
    "llama": ModelShape(
        "llama", layers=3, hidden=48, heads=6, kv_heads=2, head_dim=8, ffn=80, vocab=97, max_positions=64
    ),
    "qwen3": ModelShape(
        "qwen3",
        layers=3,
        hidden=40,
        heads=4,
        kv_heads=2,
        head_dim=16,
        ffn=72,
        vocab=97,
        qk_norm=True,
        max_positions=64,
        rope_theta=1_000_000.0,
        norm_eps=1e-6,
    ),
    "opt": ModelShape(
        "opt",
        layers=3,
        hidden=48,
        heads=6,
        kv_heads=6,
        head_dim=8,
        ffn=80,
        vocab=97,
        mlp="plain",
        norm="layer",
        positions="learned",
        biases=True,
        tied_head=True,
        max_positions=64,
    ),
}


def hf_model(shape: ModelShape, dtype: torch.dtype, seed: int = 0) -> PreTrainedModel:
    """A random model of `shape` that computes in `dtype` throughout.

    The RMS norms of transformers compute in float32 whatever the model's type is; they are replaced by torch's own
    module, or no float64 comparison could be tight. Norm weights and biases are random too: ones and zeros hide errors.
    """
    common = {
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "max_position_embeddings": shape.max_positions,
        "tie_word_embeddings": shape.tied_head,
        "attn_implementation": "sdpa",
        "pad_token_id": 1,
    }
    rotary = common | {
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.ffn,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,  # transformers 4
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},  # transformers 5
    }
    if shape.name == "llama":
        model: PreTrainedModel = LlamaForCausalLM(LlamaConfig(**rotary))
    elif shape.name == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**rotary))
    else:
        model = OPTForCausalLM(OPTConfig(**common, ffn_dim=shape.ffn, word_embed_proj_dim=shape.hidden, dropout=0.0))
    model = model.to(dtype).eval()
    _replace_rms_norms(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            parameter.normal_(centre, 0.1, generator=generator)
    return model


def _replace_rms_norms(model: PreTrainedModel) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LlamaRMSNorm | Qwen3RMSNorm):
                weight = child.weight
                setattr(parent, name, torch.nn.RMSNorm(weight.shape, child.variance_epsilon, dtype=weight.dtype))


def our_weights(shape: ModelShape, model: PreTrainedModel) -> Weights:
    """The weights of a Hugging Face Llama, Qwen3 or OPT as `kernels.weights` holds them."""
    state = {name.removeprefix("model.").removeprefix("decoder."): t for name, t in model.state_dict().items()}
    return _opt(shape, state) if shape.positions == "learned" else _llama(shape, state)


def _llama(shape: ModelShape, state: dict[str, torch.Tensor]) -> Weights:
    def layer(at: str) -> LayerWeights:
        qk_norm = None
        if shape.qk_norm:
            q, k = (state[f"{at}.self_attn.{which}_norm.weight"] for which in "qk")
            qk_norm = torch.cat((q.expand(shape.heads, -1), k.expand(shape.kv_heads, -1)))
        return LayerWeights(
            attention_norm=Affine(state[f"{at}.input_layernorm.weight"]),
            qkv=Affine(torch.cat([state[f"{at}.self_attn.{which}_proj.weight"] for which in "qkv"])),
            out=Affine(state[f"{at}.self_attn.o_proj.weight"]),
            mlp_norm=Affine(state[f"{at}.post_attention_layernorm.weight"]),
            up=Affine(torch.cat([state[f"{at}.mlp.{which}_proj.weight"] for which in ("gate", "up")])),
            down=Affine(state[f"{at}.mlp.down_proj.weight"]),
            qk_norm=qk_norm,
        )

    layers = tuple(layer(f"layers.{number}") for number in range(shape.layers))
    return Weights(
        shape, state["embed_tokens.weight"], None, layers, Affine(state["norm.weight"]), state["lm_head.weight"]
    )


def _opt(shape: ModelShape, state: dict[str, torch.Tensor]) -> Weights:
    def affine(at: str) -> Affine:
        return Affine(state[f"{at}.weight"], state[f"{at}.bias"])

    def layer(at: str) -> LayerWeights:
        qkv = [affine(f"{at}.self_attn.{which}_proj") for which in "qkv"]
        return LayerWeights(
            attention_norm=affine(f"{at}.self_attn_layer_norm"),
            qkv=Affine(*(torch.cat([getattr(part, side) for part in qkv]) for side in ("weight", "bias"))),
            out=affine(f"{at}.self_attn.out_proj"),
            mlp_norm=affine(f"{at}.final_layer_norm"),
            up=affine(f"{at}.fc1"),
            down=affine(f"{at}.fc2"),
        )

    layers = tuple(layer(f"layers.{number}") for number in range(shape.layers))
    # The first two rows of OPT's table belong to no token.
    positions = state["embed_positions.weight"][2:]
    return Weights(
        shape, state["embed_tokens.weight"], positions, layers, affine("final_layer_norm"), state["lm_head.weight"]
    )
