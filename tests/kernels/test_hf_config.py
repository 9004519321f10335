"""KV bytes a token of published models, and one test for every rule that gets them right."""

from __future__ import annotations

import pytest

from kernels.hf_config import ConfigError, from_config, from_file
from tests.kernels.hf_configs import CONFIGS, EXPECTED, NAIVE, REFUSED, config, naive, read


def test_every_file_has_an_answer() -> None:
    assert {path.stem for path in CONFIGS.glob("*.json")} == {*EXPECTED, *REFUSED}


@pytest.mark.parametrize("name", EXPECTED)
def test_bytes_a_token(name: str) -> None:
    model, (allocated, growing) = from_file(CONFIGS / f"{name}.json"), EXPECTED[name]
    assert model.name == name
    assert model.kv_bytes_per_token("bfloat16") == allocated
    assert model.kv_bytes_per_token_growing("bfloat16") == growing
    if name != "deepseek-v3.2":  # its indexer is FP8 whatever the cache is
        assert model.kv_bytes_per_token("float8_e4m3fn") == allocated // 2


@pytest.mark.parametrize("name", NAIVE)
def test_the_usual_one_liner_is_wrong(name: str) -> None:
    if NAIVE[name] is None:
        with pytest.raises(KeyError):
            naive(read(name))
    else:
        assert naive(read(name)) == NAIVE[name] != EXPECTED[name][0]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("mixtral-8x7b", 8 * 131_072),  # a cache an expert
        ("qwen3.5-27b", 262_144),  # linear layers counted too
        ("gemma-3-12b", 368_640),  # 3840 / 16 elements a head
        ("deepseek-v3", 2 * 70_272),  # K and V
        ("deepseek-v3", 124_928),  # LMCache#694
        ("deepseek-v3", 4_997_120),  # K and V of all heads
        ("falcon-7b", 581_632),  # 71 KV heads, as num_kv_heads says
        ("opt-13b", 800 * 1000),  # the paper's KB has 1024 bytes
    ],
)
def test_other_wrong_answers(name: str, wrong: int) -> None:
    assert from_config(read(name)).kv_bytes_per_token("bfloat16") == EXPECTED[name][0] != wrong


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("gemma-4-26b", "global_head_dim"),
        ("deepseek-v4", "model_type"),
        ("kimi-k3", "model_type"),
        ("minimax-m3", "model_type"),
    ],
)
def test_caches_that_bytes_a_token_cannot_say_are_refused(name: str, field: str) -> None:
    with pytest.raises(ConfigError, match=rf"{field} .*not computed here"):
        from_config(read(name))
    anonymous = config(name, model_type="new")
    anonymous["model_type"] = "new"
    with pytest.raises(ConfigError, match="not computed here"):
        from_config(anonymous)


@pytest.mark.parametrize("place", ["text_config", "language_config", "llm_config"])
def test_nested_configs(place: str) -> None:
    found = from_config({"model_type": "any", place: config("qwen3-0.6b"), "torch_dtype": "float16"})
    assert found.kv_bytes_per_token("float16") == 114_688
    assert found.dtype == "float16"
    with pytest.raises(ConfigError, match=rf"{place}\.num_hidden_layers is missing"):
        from_config({place: config("qwen3-0.6b", num_hidden_layers=None)})
    deeper = {"model_type": "qwen3_omni_moe", "thinker_config": {place: config("qwen3-0.6b")}}
    assert from_config(deeper).kv == found.kv


def test_head_dim_comes_before_the_quotient() -> None:
    assert from_config(config("llama-3-8b", head_dim=64)).kv[0].width == 64
    assert from_config(config("llama-3-8b")).kv[0].width == 128
    with pytest.raises(ConfigError, match=r"head_dim is missing: hidden_size 4096 is not a multiple of 31 heads"):
        from_config(config("llama-3-8b", num_attention_heads=31))
    with pytest.raises(ConfigError, match=r"head_dim is missing: qwen3 has one"):
        from_config(config("qwen3-8b", head_dim=None))


def test_windows() -> None:
    gemma = from_config(config("gemma-3-4b"))
    assert [layer.window for layer in gemma.kv].count(1024) == 29
    assert [number for number, layer in enumerate(gemma.kv) if layer.window is None] == [5, 11, 17, 23, 29]
    assert from_config(config("mistral-7b", sliding_window=4096)).kv_bytes_per_token_growing("bfloat16") == 0
    phi = from_config(config("phi-3.5-mini", sliding_window=2047))
    assert (phi.kv_bytes_per_token("bfloat16"), phi.kv_bytes_per_token_growing("bfloat16")) == (393_216, 0)
    with pytest.raises(ConfigError, match="layer_types is missing: sliding_window does not say which"):
        from_config(config("llama-3-8b", sliding_window=4096))
    with pytest.raises(ConfigError, match=r"layer_types names 23 layers; there are 24"):
        from_config(config("gpt-oss-20b", layer_types=["full_attention"] * 23))
    with pytest.raises(ConfigError, match=r"layer_types has 'ring_attention'; known: full_attention"):
        from_config(config("gpt-oss-20b", layer_types=["ring_attention"] * 24))


def test_a_window_needs_to_be_switched_on() -> None:
    on = from_config(config("qwen2.5-7b", use_sliding_window=True, sliding_window=4096, max_window_layers=21))
    assert [layer.window for layer in on.kv] == [None] * 21 + [4096] * 7
    for off in (
        config("qwen2.5-7b", sliding_window=4096),
        config("qwen2.5-7b", use_sliding_window=None, sliding_window=4096, max_window_layers=0),
    ):
        assert from_config(off).kv_bytes_per_token_growing("bfloat16") == 57_344
    with pytest.raises(ConfigError, match="use_sliding_window is 'yes'"):
        from_config(config("qwen2.5-7b", use_sliding_window="yes"))


def test_layers_that_hold_no_kv() -> None:
    hybrid = from_config(config("qwen3.5-27b"))
    assert hybrid.layers == 16
    assert any("48 layers keep a state of fixed size" in note for note in hybrid.notes)
    assert from_config(config("qwen3.5-27b", layer_types=None, full_attention_interval=4)).kv == hybrid.kv
    for gone in ({"layer_types": None}, {"layer_types": None, "linear_num_key_heads": None}):
        with pytest.raises(ConfigError, match=r"text_config\.layer_types is missing"):
            from_config(config("qwen3.5-27b", **gone))
    with pytest.raises(ConfigError, match=r"layer_types is missing: with mamba_d_state"):
        from_config(config("llama-3-8b", mamba_d_state=16))
    nemotron = config("llama-3.2-1b", hybrid_override_pattern="M-" * 7 + "M*")
    assert from_config(nemotron).kv_bytes_per_token("bfloat16") == 32_768 // 16
    jamba = config("llama-3.2-1b", attn_layer_period=8, attn_layer_offset=4)
    assert from_config(jamba).layers == 2
    assert from_config(config("llama-3.2-1b", num_kv_shared_layers=4)).layers == 12


def test_falcons_flags() -> None:
    assert from_config(config("falcon-7b")).kv[0].kv_heads == 1
    assert from_config(config("falcon-7b", multi_query=False)).kv[0].kv_heads == 71
    forty = config("falcon-7b", new_decoder_architecture=True, num_kv_heads=8, hidden_size=8192)
    assert from_config(forty | {"num_attention_heads": 128}).kv[0].kv_heads == 8
    with pytest.raises(ConfigError, match="num_kv_heads is missing"):
        from_config(config("falcon-7b", new_decoder_architecture=True, num_kv_heads=None))


def test_latents_have_no_factor_two_and_are_not_divided() -> None:
    deepseek = from_config(config("deepseek-v3"))
    assert (deepseek.kv[0].latent, deepseek.kv[0].width, deepseek.kv[0].tensors) == (True, 576, 1)
    assert deepseek.kv_bytes_per_token("bfloat16") == 61 * 576 * 2
    assert deepseek.kv_bytes_per_token("bfloat16", tp=8) == 70_272
    assert deepseek.kv_bytes_per_token("bfloat16", draft=True) == 70_272 + 1_152
    assert deepseek.cannot_compute == "latent attention (MLA)"
    plain = config("deepseek-v2-lite", kv_lora_rank=None, qk_rope_head_dim=0, v_head_dim=0, use_mla=False)
    assert from_config(plain).kv_bytes_per_token("bfloat16") == 221_184  # DeepSeek-OCR has its kind
    with pytest.raises(ConfigError, match="use_mla is false, but kv_lora_rank"):
        from_config(config("deepseek-v3", use_mla=False))


def test_the_sparse_indexer_is_approximate() -> None:
    sparse = from_config(config("deepseek-v3.2"))
    assert sparse.kv_bytes_per_token("fp8_ds_mla") == 48_068
    assert sparse.kv[0].side_bytes == 132
    assert any(note.startswith("approximate") for note in sparse.notes)
    with pytest.raises(ConfigError, match="index_head_dim is missing"):
        from_config(config("deepseek-v3.2", index_head_dim=None))
    with pytest.raises(ConfigError, match="llama: fp8_ds_mla is a cache of latents"):
        from_config(config("llama-3-8b"), "llama").kv_bytes_per_token("fp8_ds_mla")


def test_scarce_kv_heads_are_replicated() -> None:
    llama, qwen = from_config(config("llama-3-8b")), from_config(config("qwen2.5-3b"))
    assert [llama.kv_bytes_per_token("bfloat16", tp) for tp in (1, 2, 8, 16)] == [131_072, 65_536, 16_384, 16_384]
    assert [qwen.kv_bytes_per_token("bfloat16", tp) for tp in (2, 4)] == [18_432, 18_432]
    for tp in (0, 3):
        with pytest.raises(ConfigError, match=r"ranks|degree"):
            llama.kv_bytes_per_token("bfloat16", tp)


def test_the_cache_has_the_type_its_own_scheme_says() -> None:
    assert from_config(config("gpt-oss-20b")).dtype is None
    assert from_config(config("llama-3-8b", torch_dtype="torch.float16")).kv_dtype == "float16"
    assert from_config(config("llama-3-8b", torch_dtype=None, dtype="float32")).dtype == "float32"
    assert from_config(config("llama-3-8b", torch_dtype="auto")).dtype is None
    weights_only = from_config(config("deepseek-v3"))  # quantization_config: fp8 weights
    assert (weights_only.dtype, weights_only.kv_dtype) == ("bfloat16", "bfloat16")
    for scheme in ({"kv_cache_scheme": {"type": "float", "num_bits": 8}}, {"kv_cache_quant_algo": "FP8"}):
        found = from_config(config("llama-3-8b", quantization_config=scheme))
        assert (found.dtype, found.kv_dtype) == ("bfloat16", "float8_e4m3fn")
    with pytest.raises(ConfigError, match=r"quantization_config\.kv_cache_quant_algo is a KV cache of another type"):
        from_config(config("llama-3-8b", quantization_config={"kv_cache_quant_algo": "NVFP4"}))
    with pytest.raises(ConfigError, match="torch_dtype is 'int7'; known: float64"):
        from_config(config("llama-3-8b", torch_dtype="int7"))
