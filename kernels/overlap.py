"""Computing and copying at once, on the two streams of one device."""

from __future__ import annotations

from collections.abc import Callable

from kernels.device import Device, T


def overlap(device: Device, compute: Callable[[], T], copy: Callable[[], object]) -> T:
    """Enqueue both behind all that the device holds; what is enqueued on it afterwards waits for both.

    Parameters
    ----------
    compute : callable
        Puts its work on the device's own stream.
    copy : callable
        Puts its work on the sibling's.

    Returns
    -------
    T
        What `compute` returns.
    """
    beside = device.sibling()
    beside.follow(device)
    # A loop of copies takes the host milliseconds to enqueue: where computing does not hold up the host it goes first,
    # and runs meanwhile.
    if device.runs_at_once:
        copy()
        computed = compute()
    else:
        computed = compute()
        copy()
    device.follow(beside)
    return computed
