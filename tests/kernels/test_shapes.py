from __future__ import annotations

import pytest

from kernels.shapes import LAYOUTS, SHAPES, ModelShape, dtype_bytes, find

LLAMA, OPT = find("llama-3-8b"), find("opt-13b")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("llama-3-8b", 131_072),  # 2 * 32 * 8 * 128 * 2
        ("llama-3-70b", 327_680),  # 2 * 80 * 8 * 128 * 2
        ("opt-13b", 819_200),  # 2 * 40 * 40 * 128 * 2, the paper's 800 KB
        ("qwen3-8b", 147_456),  # 2 * 36 * 8 * 128 * 2
        ("mistral-7b", 131_072),
    ],
)
def test_kv_bytes_per_token(model: str, expected: int) -> None:
    assert find(model).kv_bytes_per_token("float16") == expected
    assert find(model).kv_bytes_per_token("float32") == 2 * expected
    assert find(model).kv_bytes_per_token("float8_e4m3fn") == expected // 2


def test_fragments_at_block_16() -> None:
    assert OPT.fragment_bytes("layer_split", 16, "float16") == 160 * 1024
    assert LLAMA.fragment_bytes("layer_split", 16, "bfloat16") == 32 * 1024
    assert LLAMA.fragment_bytes("layer_joined", 16, "bfloat16") == 64 * 1024
    assert LLAMA.fragment_bytes("cross_layer", 16, "bfloat16") == 2 * 1024**2
    assert OPT.fragment_bytes("layer_split", 1, "float16") == 10 * 1024
    assert find("llama-3-70b").shard(4).fragment_bytes("layer_split", 16, "bfloat16") == 8 * 1024


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_fragments_add_up_to_the_block(shape: ModelShape, layout: str) -> None:
    fragments = shape.fragments_per_block(layout) * shape.fragment_bytes(layout, 16, "bfloat16")  # type: ignore[arg-type]
    assert fragments == 16 * shape.kv_bytes_per_token("bfloat16")


def test_linear_flops_by_hand() -> None:
    # a layer of Llama-3-8B: Q and O 4096 * 4096, K and V 4096 * 1024, three of 4096 * 14336 = 218,103,808
    assert LLAMA.layer_parameters == 218_103_808
    assert LLAMA.linear_flops(1) == 2 * 32 * 218_103_808 == 13_958_643_712
    # OPT-13B: four of 5120 * 5120, two of 5120 * 20480 = 314,572,800
    assert OPT.linear_flops(1) == 2 * 40 * 314_572_800 == 25_165_824_000


def test_prefill_flops_by_hand() -> None:
    attention = 2 * 32 * 4096 * 4096 * 4096  # causal half: 2 * layers * width * tokens^2
    head = 2 * 128256 * 4096
    assert LLAMA.prefill_flops(4096) == 4096 * 13_958_643_712 + attention + head


def test_cached_tokens_are_seen_by_every_new_one() -> None:
    whole, front = LLAMA.attention_flops(1000), LLAMA.attention_flops(400)
    assert front + LLAMA.attention_flops(600, cached=400) == whole


def test_weight_bytes_by_hand() -> None:
    assert LLAMA.weight_bytes("bfloat16") == 2 * (32 * 218_103_808 + 128256 * 4096)
    assert LLAMA.with_layers(1).weight_bytes("float32") == 4 * (218_103_808 + 128256 * 4096)


def test_memory_of_a_prefill_by_hand() -> None:
    # Llama-3-8B in bfloat16: 15,009,316,864 bytes of matrices once, 131,072 bytes of K and V a token twice
    assert LLAMA.prefill_memory_bytes(1, "bfloat16") == 15_009_316_864 + 2 * 131_072
    assert LLAMA.prefill_memory_bytes(512, "bfloat16") == 15_009_316_864 + 134_217_728
    # a layer of OPT-13B in float32 and its head: 314,572,800 + 50,272 * 5,120 elements; 40,960 bytes of K and V a token
    assert OPT.with_layers(1).prefill_memory_bytes(3, "float32") == 4 * 571_965_440 + 6 * 40_960


def test_flops_of_a_prefill_behind_a_prefix_by_hand() -> None:
    # 410 tokens behind 3,686 cached: the new ones see 410 * 410 / 2 pairs of their own and 410 * 3,686 of the others
    linear, head = 410 * 13_958_643_712, 2 * 128256 * 4096
    assert LLAMA.prefill_flops(410, cached=3686) == linear + 4 * 32 * 4096 * (410 * 205 + 410 * 3686) + head


def test_flops_per_kv_byte() -> None:
    assert round(LLAMA.flops_per_kv_byte("bfloat16")) == 106_496
    assert round(OPT.flops_per_kv_byte("float16")) == 30_720
    assert round(find("llama-3-70b").flops_per_kv_byte("bfloat16")) == 417_792


def test_shard_divides_heads_and_replicates_scarce_kv_heads() -> None:
    shard = LLAMA.shard(16)
    assert (shard.heads, shard.kv_heads, shard.ffn, shard.vocab) == (2, 1, 896, 8016)
    assert LLAMA.shard(2).kv_bytes_per_token("bfloat16") == 65_536
    assert LLAMA.shard(1) == LLAMA


@pytest.mark.parametrize("tp", [0, -1, 3, 64])
def test_shard_refuses_what_does_not_divide(tp: int) -> None:
    with pytest.raises(ValueError, match=r"divide|degree|repeat"):
        LLAMA.shard(tp)


def test_with_layers() -> None:
    assert LLAMA.with_layers(0) is not None
    assert LLAMA.with_layers(0).layers == 32
    assert LLAMA.with_layers(2).kv_bytes_per_token("bfloat16") == 8192
    with pytest.raises(ValueError, match="has 32 layers"):
        LLAMA.with_layers(33)


@pytest.mark.parametrize(
    "call", [lambda: find("gpt-5"), lambda: dtype_bytes("int3"), lambda: LLAMA.fragments_per_block("rows")]
)
def test_unknown_names_list_the_known(call: object) -> None:
    with pytest.raises(ValueError, match=r"unknown .*; known: "):
        call()  # type: ignore[operator]


def test_refuses_impossible_geometry() -> None:
    with pytest.raises(ValueError, match="block_size 0"):
        LLAMA.fragment_bytes("layer_split", 0, "bfloat16")
    with pytest.raises(ValueError, match="cannot share"):
        ModelShape("odd", layers=1, hidden=8, heads=3, kv_heads=2, head_dim=4, ffn=8, vocab=8)
    with pytest.raises(ValueError, match="ffn is 0"):
        ModelShape("odd", layers=1, hidden=8, heads=2, kv_heads=2, head_dim=4, ffn=0, vocab=8)
