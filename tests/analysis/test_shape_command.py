"""`python -m analysis shape`: of a known model, of a config.json, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from analysis.__main__ import app
from kernels import shapes
from tests.kernels.hf_configs import CONFIGS, EXPECTED, REFUSED, read

NOT_COMPUTED = ("linear_flops_per_token", "flops_per_kv_byte", "break_even_flops_per_byte", "weight_bytes")


def run(*arguments: object) -> Result:
    """`python -m analysis shape`; a traceback fails the test."""
    result = CliRunner().invoke(app, ["shape", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def values(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def path(name: str) -> Path:
    return CONFIGS / f"{name}.json"


@pytest.mark.parametrize("name", EXPECTED)
def test_bytes_a_token_of_a_config(name: str) -> None:
    found = values(path(name), "--dtype", "bfloat16")
    assert (found["kv_bytes_per_token"], found["kv_bytes_per_token_growing"]) == EXPECTED[name]
    assert found["model"] == name
    computed = [found[key] is not None for key in NOT_COMPUTED]
    assert computed == [found["cannot_compute"] is None] * len(NOT_COMPUTED)


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("name", ["llama-3-8b", "opt-13b", "qwen3-8b"])
def test_a_known_model_and_its_config_say_the_same(name: str, tp: int) -> None:
    by_name, by_path = (values(model, "--tp", tp, "--dtype", "float16") for model in (name, path(name)))
    assert by_name.pop("model") == shapes.find(name).shard(tp).name
    assert by_path.pop("model") == name
    assert by_name == by_path
    assert by_name["weight_bytes"] == shapes.find(name).shard(tp).weight_bytes("float16")


def test_fragments_of_latents_and_of_layers_that_differ() -> None:
    latent = values(path("deepseek-v3"), "--block-size", 64, "--tp", 8)
    assert {
        layout: (entry["fragments_per_block"], entry["fragment_bytes"]) for layout, entry in latent["layouts"].items()
    } == {
        "layer_split": (61, {"64": 73_728}),
        "layer_joined": (61, {"64": 73_728}),
        "cross_layer": (1, {"64": 64 * 70_272}),
    }
    assert latent["cannot_compute"] == "latent attention (MLA)"
    sparse = values(path("deepseek-v3.2"), "--dtype", "fp8_ds_mla", "--block-size", 1)
    assert sparse["kv_bytes_per_token"] == 48_068
    assert sparse["layouts"]["layer_joined"]["fragment_bytes"] == {"1": None}


def test_the_type_is_the_configs_unless_it_is_given(tmp_path: Path) -> None:
    assert values(path("opt-13b"))["dtype"] == "float16"
    assert values(path("gpt-oss-20b"))["dtype"] == "bfloat16"  # the config says nothing
    file = tmp_path / "fp8.json"
    scheme = {"kv_cache_scheme": {"type": "float", "num_bits": 8}}
    file.write_text(json.dumps(read("llama-3-8b") | {"quantization_config": scheme}), encoding="utf-8")
    assert values(file)["kv_bytes_per_token"] == 65_536
    assert values(file, "--dtype", "float32")["kv_bytes_per_token"] == 262_144


def test_weights_that_do_not_divide_leave_the_cache_its_size() -> None:
    found = values(path("llama-3-8b"), "--tp", 128)
    assert found["kv_bytes_per_token"] == 2 * 32 * 128 * 2
    assert found["weight_bytes"] is None
    assert "heads 32 does not divide over 128 ranks" in found["cannot_compute"]


def test_the_tables_fit_the_terminal_and_say_what_is_missing() -> None:
    result = run(path("gpt-oss-20b"))
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100
    for text in ("49,152", "24,576", "gpt-oss-20b, bfloat16", "no prefill is computed: mixture of experts"):
        assert text in result.stdout
    assert "48 layers keep a state of fixed size" in run(path("qwen3.5-27b")).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(((path(name),), "not computed here") for name in REFUSED),
        (("absent.json",), "absent.json: No such file"),
        (("gpt-5",), "unknown model 'gpt-5'; known: llama-3-8b"),
        ((path("llama-3-8b"), "--dtype", "int3"), "unknown dtype 'int3'"),
        ((path("llama-3-8b"), "--tp", "3"), "8 KV heads neither divide over nor repeat over 3 ranks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals_are_one_line(arguments: tuple[object, ...], message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr
