"""What a device can do at most, as things that can be issued: a square matrix product, and a copy within its memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.device import Device, check_fits
from kernels.shapes import dtype_bytes
from kernels.weights import MODEL_DTYPES

__all__ = ["Gemm", "MemoryCopy", "prepare_gemm", "prepare_memory_copy"]


@dataclass(frozen=True, eq=False)
class Gemm:
    """A product of two square matrices, made ready by `prepare_gemm`.

    Attributes
    ----------
    left, right, product : torch.Tensor
        (n, n) each, on the device.
    """

    device: Device
    left: torch.Tensor
    right: torch.Tensor
    product: torch.Tensor

    @property
    def flops(self) -> int:
        """A multiply and an add for each of n^3 pairs."""
        return 2 * len(self.left) ** 3

    def issue(self) -> torch.Tensor:
        """Enqueue the product on the device's stream; it is in `product` once the device is done."""
        with self.device.on_stream(), torch.inference_mode():
            return torch.mm(self.left, self.right, out=self.product)


@dataclass(frozen=True, eq=False)
class MemoryCopy:
    """A contiguous copy within the device's memory, made ready by `prepare_memory_copy`.

    Attributes
    ----------
    source, destination : torch.Tensor
        uint8, one-dimensional: read once and written once.
    """

    device: Device
    source: torch.Tensor
    destination: torch.Tensor

    def issue(self) -> None:
        """Enqueue the copy on the device's stream."""
        with self.device.on_stream():
            self.destination.copy_(self.source)


def prepare_gemm(device: Device, dtype: str, n: int) -> Gemm:
    """Two matrices of N(0, 1) and room for their product. Zeros draw less power, and would be multiplied faster.

    Raises
    ------
    ValueError
        If `dtype` is no type that a model computes in.
    DoesNotFit
        If the device lacks the memory; nothing is allocated then.
    """
    if dtype not in MODEL_DTYPES:
        raise ValueError(f"no matrix product in {dtype!r}; use one of {', '.join(MODEL_DTYPES)}")
    check_fits(device, 3 * n * n * dtype_bytes(dtype), 0, f"a product of {n} x {n} matrices in {dtype}")
    with device.on_stream():
        left, right, product = (
            torch.empty(n, n, dtype=getattr(torch, dtype), device=device.torch_device) for _ in range(3)
        )
        left.normal_()
        right.normal_()
    device.wait()
    return Gemm(device, left, right, product)


def prepare_memory_copy(device: Device, nbytes: int) -> MemoryCopy:
    """Random bytes and a place for them: more than the caches hold, if memory is to be seen.

    Raises
    ------
    DoesNotFit
        If the device lacks the memory for both; nothing is allocated then.
    """
    check_fits(device, 2 * nbytes, 0, f"a copy of {nbytes:,} bytes within the device")
    with device.on_stream():
        source, destination = device.empty(nbytes), device.empty(nbytes)
        source.random_()
        destination.zero_()  # every page is there before anything is timed
    device.wait()
    return MemoryCopy(device, source, destination)
