from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.device import DoesNotFit, open_device
from kernels.peaks import prepare_gemm, prepare_memory_copy

CPU = open_device("cpu")


class Small:
    """A CPU with little memory, which allocates none."""

    backend = "cpu"

    def __init__(self, free: int) -> None:
        self._free = free

    def free_bytes(self) -> tuple[int, int]:
        return self._free, self._free


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_the_product_is_that_of_random_matrices(dtype: str) -> None:
    gemm = prepare_gemm(CPU, dtype, 48)
    assert gemm.issue() is gemm.product
    truth = gemm.left.double() @ gemm.right.double()
    torch.testing.assert_close(gemm.product.double(), truth, rtol=0.02, atol=0.1)
    assert float(gemm.left.double().std()) == pytest.approx(1, abs=0.1)
    assert not torch.equal(gemm.left, gemm.right)
    assert gemm.flops == 2 * 48**3 == 221_184


def test_a_copy_within_the_device_carries_random_bytes() -> None:
    copy = prepare_memory_copy(CPU, 4096)
    assert not torch.equal(copy.source, copy.destination)
    copy.issue()
    assert torch.equal(copy.source, copy.destination)
    assert len(copy.source.unique()) > 200


def test_what_does_not_fit_is_refused_before_it_is_allocated() -> None:
    short: Any = Small(free=3 * 64 * 64 * 4 - 1)
    with pytest.raises(DoesNotFit, match=r"a product of 64 x 64 matrices in float32 needs 49,152 bytes"):
        prepare_gemm(short, "float32", 64)
    with pytest.raises(DoesNotFit, match=r"a copy of 24,576 bytes within the device needs 49,152 bytes"):
        prepare_memory_copy(short, 24_576)


def test_a_type_no_model_computes_in_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no matrix product in 'float8_e4m3fn'; use one of float64, float32"):
        prepare_gemm(CPU, "float8_e4m3fn", 64)
