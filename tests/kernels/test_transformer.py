"""Prefill against Hugging Face transformers: logits, and every K and V that lands in a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel

from kernels.attention import attend, pinned, usable_attention
from kernels.device import open_device
from kernels.paged_kv import Geometry, Pool, block_ids
from kernels.sequences import Run, Sequences
from kernels.shapes import LAYOUTS, Layout, ModelShape
from kernels.transformer import Prefill, prepare
from kernels.weights import random_weights
from tests.kernels.hf_weights import SMALL, hf_model, our_weights

BLOCK_SIZE = 4
BLOCKS = 24
UNTOUCHED = 0x5A  # fills the pool before a prefill; no K or V consists of it
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4}
CPU = open_device("cpu")


@dataclass(frozen=True)
class Truth:
    """What transformers computes for one prompt: last logits; K and V of each layer, (tokens, kv_heads, head_dim)."""

    logits: torch.Tensor
    kv: list[tuple[torch.Tensor, torch.Tensor]]


def truth(model: PreTrainedModel, ids: torch.Tensor) -> Truth:
    """One prompt through transformers, with the unfused attention that our side does not use."""
    with torch.no_grad(), sdpa_kernel([SDPBackend.MATH]):
        out = model(ids[None], use_cache=True)
    layers = [(layer.keys[0].transpose(0, 1), layer.values[0].transpose(0, 1)) for layer in out.past_key_values.layers]
    return Truth(out.logits[0, -1], layers)


def pool_for(shape: ModelShape, dtype: torch.dtype, layout: Layout = "layer_split") -> Pool:
    geometry = Geometry(shape, str(dtype).removeprefix("torch."), layout, BLOCK_SIZE)
    arena = torch.full((geometry.block_bytes * BLOCKS,), UNTOUCHED, dtype=torch.uint8)
    return Pool(arena, geometry, BLOCKS, "device")


def prompts(shape: ModelShape, lengths: Sequence[int], placement: str = "scattered") -> Sequences:
    ids = torch.randint(0, shape.vocab, (sum(lengths),), generator=torch.Generator().manual_seed(1))
    counts = [-(-length // BLOCK_SIZE) for length in lengths]
    held = block_ids(placement, sum(counts), BLOCKS, seed=2)
    return Sequences(ids, lengths, np.split(held, np.cumsum(counts)[:-1]))


def stored(pool: Pool, layer: int, ids: np.ndarray, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of one sequence, read back block after block."""
    k, v = (view[torch.from_numpy(ids)].flatten(0, 1)[:length] for view in pool.kv(layer))
    return k, v


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    tolerance = TOLERANCE[ours.dtype]
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def assert_agrees(prefill: Prefill, pool: Pool, sequences: Sequences, model: PreTrainedModel) -> None:
    logits = prefill.issue()
    texts = sequences.token_ids.split(list(sequences.lengths))
    for row, (ids, blocks) in enumerate(zip(texts, sequences.block_ids, strict=True)):
        expected = truth(model, ids)
        assert_close(logits[row], expected.logits)
        for layer, pair in enumerate(expected.kv):
            for ours, theirs in zip(stored(pool, layer, blocks, len(ids)), pair, strict=True):
                assert_close(ours, theirs)


@pytest.fixture(params=list(SMALL))
def shape(request: pytest.FixtureRequest) -> ModelShape:
    return SMALL[request.param]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_logits_and_every_k_and_v_agree_with_transformers(
    shape: ModelShape, dtype: torch.dtype, layout: Layout
) -> None:
    model = hf_model(shape, dtype)
    pool, sequences = pool_for(shape, dtype, layout), prompts(shape, [13])
    assert_agrees(prepare(CPU, our_weights(shape, model), pool, sequences), pool, sequences, model)


@pytest.mark.parametrize("lengths", [(13, 6), (5, 5, 9), (1, 7)], ids=str)
def test_packed_sequences_agree_with_each_alone(shape: ModelShape, lengths: tuple[int, ...]) -> None:
    model = hf_model(shape, torch.float64)
    pool, sequences = pool_for(shape, torch.float64, "cross_layer"), prompts(shape, lengths)
    assert_agrees(prepare(CPU, our_weights(shape, model), pool, sequences), pool, sequences, model)


def test_every_attention_name_gives_the_same(shape: ModelShape) -> None:
    model = hf_model(shape, torch.float64)
    for attention in ("MATH", "FLASH_ATTENTION", "FLASH_ATTENTION+REPEATED_KV"):
        pool, sequences = pool_for(shape, torch.float64), prompts(shape, [9, 4])
        prefill = prepare(CPU, our_weights(shape, model), pool, sequences, attention)
        assert prefill.attention == attention
        assert_agrees(prefill, pool, sequences, model)


def test_the_longest_sequence_of_the_model_runs(shape: ModelShape) -> None:
    model = hf_model(shape, torch.float64)
    pool, sequences = pool_for(shape, torch.float64), prompts(shape, [shape.max_positions])
    assert_agrees(prepare(CPU, our_weights(shape, model), pool, sequences), pool, sequences, model)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_past_the_end_and_blocks_of_others_stay(shape: ModelShape, layout: Layout) -> None:
    pool, sequences = pool_for(shape, torch.float32, layout), prompts(shape, [13])
    prepare(CPU, random_weights(shape, "float32", CPU), pool, sequences).issue()
    held = torch.zeros(BLOCKS, BLOCK_SIZE, dtype=torch.bool)
    held[torch.from_numpy(sequences.block_ids[0])] = True
    held[sequences.block_ids[0][-1], 13 % BLOCK_SIZE :] = False
    by_token = pool.bytes.unflatten(-1, (BLOCK_SIZE, -1))  # (blocks, layers, 2, block_size, bytes of a token)
    written = (by_token != UNTOUCHED).any(-1)
    assert (written == held[:, None, None, :]).all()


def test_a_second_issue_gives_the_same_bytes_again(shape: ModelShape) -> None:
    pool, sequences = pool_for(shape, torch.float32), prompts(shape, [13, 6])
    prefill = prepare(CPU, random_weights(shape, "float32", CPU), pool, sequences)
    first, before = prefill.issue(), pool.arena.clone()
    pool.arena.fill_(UNTOUCHED)
    assert torch.equal(prefill.issue(), first)
    assert torch.equal(pool.arena, before)


def test_outside_layers_is_embedding_final_norm_and_head(shape: ModelShape) -> None:
    model = hf_model(shape, torch.float64)
    pool, sequences = pool_for(shape, torch.float64), prompts(shape, [9, 4])
    logits = prepare(CPU, our_weights(shape, model), pool, sequences).outside_layers()
    bare = model.model.decoder if shape.name == "opt" else model.model
    bare.layers = torch.nn.ModuleList()
    theirs = [model(ids[None], use_cache=False).logits[0, -1] for ids in sequences.token_ids.split([9, 4])]
    assert_close(logits, torch.stack(theirs).detach())
    assert (pool.arena == UNTOUCHED).all()


def test_fewer_layers_are_the_first_ones(shape: ModelShape) -> None:
    model = hf_model(shape, torch.float64)
    whole, cut = our_weights(shape, model), shape.with_layers(2)
    first_two = replace(whole, shape=cut, layers=whole.layers[:2])
    pool, sequences = pool_for(cut, torch.float64), prompts(cut, [9])
    prepare(CPU, first_two, pool, sequences).issue()
    for layer, pair in enumerate(truth(model, sequences.token_ids).kv[:2]):
        for ours, theirs in zip(stored(pool, layer, sequences.block_ids[0], 9), pair, strict=True):
            assert_close(ours, theirs)


def test_compiled_pieces_compute_what_eager_ones_do_and_serve_any_number_of_tokens() -> None:
    model = hf_model(SMALL["qwen3"], torch.float64)
    weights = our_weights(SMALL["qwen3"], model)

    def compiled(lengths: Sequence[int]) -> Prefill:
        pool, sequences = pool_for(weights.shape, torch.float64), prompts(weights.shape, lengths)
        prefill = prepare(CPU, weights, pool, sequences, compile=True)
        if prefill.pointwise.compiled:
            with torch.compiler.set_stance("fail_on_recompile"):
                assert_agrees(prefill, pool, sequences, model)
        return prefill

    if refusal := compiled([13]).pointwise.refusal:
        pytest.skip(refusal)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert compiled([6, 3]).pointwise.refusal is None


def test_a_refused_compilation_leaves_eager_pieces_and_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler.\nSet CC.")

    monkeypatch.setattr("kernels.pointwise._call_each", no_compiler)
    shape = SMALL["llama"]
    pool, sequences = pool_for(shape, torch.float32), prompts(shape, [5])
    prefill = prepare(CPU, random_weights(shape, "float32", CPU), pool, sequences, compile=True)
    assert not prefill.pointwise.compiled
    assert prefill.pointwise.refusal == "RuntimeError: Failed to find C compiler."
    assert prefill.issue().isfinite().all()


def test_usable_attention_is_the_fused_kernel_of_the_cpu(shape: ModelShape) -> None:
    assert usable_attention(CPU, shape, "float32", 16) == ("FLASH_ATTENTION",)


def test_the_fused_kernel_of_the_cpu_takes_grouped_heads_as_they_are() -> None:
    q, k = torch.randn(16, 8, 32), torch.randn(16, 2, 32)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen, pinned("FLASH_ATTENTION"):
        attend(q, k, k, [Run(0, 1, 16)])
    names = {event.key for event in seen.key_averages()}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
    assert not names & {"aten::repeat_interleave", "aten::copy_", "aten::clone"}


BAD_SEQUENCES = [
    ("need 4 blocks; 3 were given", {"block_ids": [np.arange(3)]}),
    ("pool has 0 to 23", {"block_ids": [np.array([0, 1, 2, 24])]}),
    ("held twice", {"block_ids": [np.array([0, 1, 2, 1])]}),
    ("of 2 sequences for 1 lengths", {"block_ids": [np.arange(4), np.arange(4)]}),
    ("add up to the 13", {"lengths": [12]}),
    ("1 or more each", {"lengths": [13, 0]}),
    ("int64 on the host", {"token_ids": torch.zeros(13, dtype=torch.int32)}),
    ("has 0 to 96", {"token_ids": torch.full((13,), 97)}),
]


@pytest.mark.parametrize(("message", "change"), BAD_SEQUENCES, ids=[message for message, _ in BAD_SEQUENCES])
def test_sequences_that_would_go_out_of_bounds_are_refused(message: str, change: dict[str, object]) -> None:
    good = {"token_ids": torch.zeros(13, dtype=torch.int64), "lengths": [13], "block_ids": [np.arange(4)]}
    weights = random_weights(SMALL["llama"], "float32", CPU)
    with pytest.raises(ValueError, match=message):
        prepare(CPU, weights, pool_for(weights.shape, torch.float32), Sequences(**(good | change)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SMALL)
def test_positions_end_where_they_are_learned_and_nowhere_else(name: str) -> None:
    weights = random_weights(SMALL[name], "float32", CPU)
    pool, sequences = pool_for(weights.shape, torch.float32), prompts(weights.shape, [weights.shape.max_positions + 1])
    if weights.positions is None:
        assert prepare(CPU, weights, pool, sequences).issue().isfinite().all()
    else:
        with pytest.raises(ValueError, match="has positions for 64"):
            prepare(CPU, weights, pool, sequences)


BAD_POOLS = [
    ("dtype is float64; float32 is expected", lambda pool: pool_for(SMALL["llama"], torch.float64)),
    ("layers is 2; 3 is expected", lambda pool: pool_for(SMALL["llama"].with_layers(2), torch.float32)),
    ("kv_heads is 6; 2 is expected", lambda pool: pool_for(replace(SMALL["llama"], kv_heads=6), torch.float32)),
    ("memory is host; device is expected", lambda pool: replace(pool, memory="host")),
    ("device is meta; cpu is expected", lambda pool: replace(pool, arena=pool.arena.to("meta"))),
]


@pytest.mark.parametrize(("message", "change"), BAD_POOLS, ids=[message for message, _ in BAD_POOLS])
def test_a_pool_that_does_not_fit_the_weights_is_refused(message: str, change: object) -> None:
    weights = random_weights(SMALL["llama"], "float32", CPU)
    assert callable(change)
    with pytest.raises(ValueError, match=message):
        prepare(CPU, weights, change(pool_for(weights.shape, torch.float32)), prompts(weights.shape, [5]))


def test_an_unknown_attention_is_refused_and_the_known_ones_are_named() -> None:
    weights = random_weights(SMALL["llama"], "float32", CPU)
    with pytest.raises(ValueError, match=r"unknown attention 'FAST'; known: .*FLASH_ATTENTION"):
        prepare(CPU, weights, pool_for(weights.shape, torch.float32), prompts(weights.shape, [5]), "FAST")
