"""Mixed steps on CUDA against the same in float64 on the CPU (which tests/kernels proves), and work beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench.beside import running_beside
from bench.measure import measure
from kernels.attention import FUSED, usable_attention
from kernels.device import Device, open_device
from kernels.graph import capture
from kernels.mixed import prepare_mixed
from kernels.overlap import overlap
from kernels.sequences import Sequences
from kernels.shapes import ModelShape
from kernels.step import PAGED, Step
from kernels.transformer import prepare
from kernels.triton_probe import no_kernels
from tests.bench.fakes import FakeBenchmark
from tests.gpu.test_decode_gpu import Recovered, recovered, settled
from tests.gpu.test_transformer_gpu import LENGTHS, LLAMA, SHAPES

pytestmark = pytest.mark.gpu
CACHED = (LENGTHS[0] - 1, LENGTHS[1] - 1, 0)  # the first two decode, the last one prefills


@pytest.fixture(scope="module")
def cuda() -> Device:
    return open_device("cuda")


@pytest.fixture(params=list(SHAPES))
def shape(request: pytest.FixtureRequest) -> ModelShape:
    return SHAPES[request.param]


def new_ones(sequences: Sequences) -> Sequences:
    """What `CACHED` leaves of each sequence."""
    texts = sequences.token_ids.split(list(sequences.lengths))
    new = [text[count:] for text, count in zip(texts, CACHED, strict=True)]
    return replace(sequences, token_ids=torch.cat(new), lengths=[len(ids) for ids in new], cached=CACHED)


def mixed(device: Device, made: Recovered, attention: str | None = None, compile: bool = False) -> Step:
    """A step over a pool that holds the whole sequences: what is new is written over."""
    prepare(device, made.weights, made.pool, made.sequences).fill()
    device.wait()
    return prepare_mixed(device, made.weights, made.pool, new_ones(made.sequences), attention, compile)


@pytest.mark.parametrize(
    ("attention", "compile"), [(None, True), *((name, False) for name in (None, "MATH", *FUSED["cuda"]))], ids=str
)
def test_a_mixed_step_agrees(cuda: Device, shape: ModelShape, attention: str | None, compile: bool) -> None:
    if attention and attention not in ("MATH", *usable_attention(cuda, shape, "bfloat16", LENGTHS[2])):
        pytest.skip(f"{attention} does not run here")
    made = recovered(cuda, shape)
    made.assert_same(settled(cuda, mixed(cuda, made, attention, compile).issue))


def test_the_kernel_serves_those_that_decode_where_it_loads(cuda: Device) -> None:
    if reason := no_kernels(cuda):
        pytest.skip(reason)
    step = mixed(cuda, recovered(cuda, LLAMA))
    assert step.paged is not None
    assert step.paged.contexts.tolist() == list(LENGTHS[:2])
    assert [(run.start, run.length, run.cached) for run, _ in step.parts] == [(2, LENGTHS[2], 0)]
    assert step.attention != PAGED


def test_a_recorded_step_on_the_sibling_agrees(cuda: Device, shape: ModelShape) -> None:
    beside, made = cuda.sibling(), recovered(cuda, shape)
    graph = capture(beside, mixed(beside, made, compile=True).issue)
    assert graph.refusal is None
    made.assert_same(settled(cuda, graph.issue))


def test_a_step_and_copies_at_once_leave_both_results(cuda: Device) -> None:
    made = recovered(cuda, LLAMA)
    host = cuda.host_memory(4 << 20).tensor.random_()
    target = torch.zeros_like(host, device=cuda.torch_device)
    graph = capture(cuda, mixed(cuda, made, compile=True).issue)

    def copy() -> None:
        cuda.sibling().enqueue(lambda: target.copy_(host, non_blocking=True))

    logits = overlap(cuda, graph.issue, copy)
    with cuda.on_stream():
        arrived = target.clone()  # behind both
    cuda.wait()
    assert torch.equal(arrived.cpu(), host)
    made.assert_same(settled(cuda, lambda: logits))


@pytest.mark.parametrize("timed", ["step", "copies"])
def test_rounds_run_beside_work_of_another_thread(cuda: Device, timed: str) -> None:
    """Bytes and counts only: also where kernels compute nothing."""
    beside = cuda.sibling()
    host = cuda.host_memory(1 << 20).tensor.random_()
    target = torch.zeros_like(host, device=cuda.torch_device)
    cuda.wait()
    computing, copying = (cuda, beside) if timed == "step" else (beside, cuda)
    issues = {
        "step": mixed(computing, recovered(cuda, LLAMA), compile=True).issue,
        "copies": lambda: copying.enqueue(lambda: target.copy_(host, non_blocking=True)),
    }
    issue = issues.pop(timed)
    (other,) = issues.values()
    benchmark = FakeBenchmark()
    with running_beside(other, beside) as running:
        measured = measure(benchmark, issue, cuda, 0.2, issue, running)
        runs = running.runs_since(benchmark.rounds)
    assert runs >= benchmark.rounds / 2  # two rounds in a row may share one
    assert measured.suspect == []
    cuda.wait()
    assert torch.equal(target.cpu(), host)
