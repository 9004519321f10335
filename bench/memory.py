"""What a case needs: blocks of a pool on either side of the link, and bytes beside its pool on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.cases import BOTH, Case
from kernels.activations import Attending, Pass, pass_bytes
from kernels.paged_kv import run_length
from kernels.preemptions import growing
from kernels.recovery import front_tokens
from kernels.shapes import dtype_bytes
from kernels.weights import MODEL_DTYPES


@dataclass(frozen=True)
class Needs:
    """Bytes that a case takes at most.

    Attributes
    ----------
    device_pool, host_pool : int
        Its pools; no host pool where nothing crosses the link.
    weights : int
        Of its model; 0 where nothing is computed.
    working : int
        On the device, beside pool and weights: what its widest pass computes, matrices of a probe, a staging buffer.
    spare : int
        What recordings take beyond that: each keeps the memory of all its passes, and in it blocks that were freed and
        fitted nothing after. At OPT-13B's widths that doubles what is ever in use at once (torch 2.15,
        `tests/gpu/test_memory_gpu.py`). Where it is missing a pass still runs, unrecorded.
    """

    device_pool: int
    host_pool: int
    weights: int
    working: int
    spare: int = 0

    def fits(self, budget: int) -> bool:
        """Whether the device has room for the case alone."""
        return self.device_pool + self.weights + self.working <= budget


def needs_of(case: Case, pool_tokens: int, attending: Callable[[Case], Attending]) -> Needs:
    """What a case needs; `attending` is asked only about cases that compute, `pool_tokens` is the sweep's."""
    block = case.geometry.block_bytes
    computed = [pass_bytes(case.geometry, one, attending(case)) for one in passes(case)]
    widest = max(computed, default=0)
    return Needs(
        device_pool=device_blocks(case, pool_tokens) * block,
        host_pool=host_blocks(case, pool_tokens) * block if case.crosses_link else 0,
        weights=case.shape.weight_bytes(case.element) if is_computed(case) else 0,
        working=widest + _scratch_bytes(case),
        spare=2 * sum(computed) - widest,
    )


def beside_pools(needs: Iterable[Needs], budget: int) -> int:
    """Bytes to keep free for weights and for work: the most that any case takes that fits into `budget` with its pool.

    A case that does not fit even alone is going to be skipped, and gets no room kept. What has no weights may run while
    those of any model are held.
    """
    fitting = [need for need in needs if need.fits(budget)]
    weights = max((need.weights for need in fitting), default=0)
    return max((_kept(need, need.weights or weights, budget) for need in fitting), default=0)


def _kept(need: Needs, weights: int, budget: int) -> int:
    return min(weights + need.working + need.spare, budget - need.device_pool)


def sequence_blocks(case: Case) -> int:
    """Blocks that the case's sequences hold; each direction has its own where both run at once."""
    return case.sequences * (2 if case.direction == BOTH else 1) * case.geometry.blocks_for(case.length)


def held_blocks(case: Case) -> int:
    """Blocks that the case's sequences and their company hold on the device."""
    return sequence_blocks(case) + sum(map(case.geometry.blocks_for, case.company_lengths))


def device_blocks(case: Case, pool_tokens: int) -> int:
    """Blocks of the case's device pool: as on the host, and behind them those of the company."""
    return host_blocks(case, pool_tokens) + held_blocks(case) - sequence_blocks(case)


def host_blocks(case: Case, pool_tokens: int) -> int:
    """Blocks of the case's host pool: `pool_tokens` tokens (0: twice the sequences), never less than what is held.

    A ceiling and a prefill need no room to scatter; the fragments of a copy are no tokens.
    """
    needed = sequence_blocks(case)
    if case.placement is None:
        return needed
    tokens = 0 if case.fragments else pool_tokens
    blocks = max(needed, case.geometry.blocks_for(tokens or 2 * case.tokens))
    run = run_length(case.placement) or 1
    return -(-blocks // run) * run


def uncomputable(case: Case) -> str | None:
    """Why our stack does not compute the case's model, type or length; None if it does."""
    if case.shape.swap_only:
        return f"{case.model}: {case.shape.swap_only}; its KV cache can only be swapped"
    if case.element not in MODEL_DTYPES:
        return f"no model computes in {case.dtype}; its KV cache can only be swapped"
    if not case.shape.can_compute(max([case.length, *case.company_lengths])):
        return f"{case.model} has positions for {case.shape.max_positions:,} tokens"
    return None


def is_computed(case: Case) -> bool:
    """The model runs: it has to, and it can."""
    return case.computes and not uncomputable(case)


def passes(case: Case) -> list[Pass]:
    """What is computed in passes of their own size; of chunks, which are alike, the last one."""
    if not is_computed(case):
        return []
    whole = Pass.of(case.sequences, case.length)
    if case.recovery in ("batching", "interference"):
        company = _company(case)
        steps = [company.beside(whole), company] if case.policy == "recompute" else [company]
        return [step for step in steps if step.tokens]
    if case.recovery == "preemptions":
        lengths = growing(case.seq_len or 0, case.growth_tokens or 0, case.preemptions or 1)
        return [Pass.of(case.sequences, length) for length in lengths]
    if case.recovery == "hybrid":
        front = front_tokens([case.length], case.fraction or 0.0, case.geometry.block_size)[0]
        return [Pass.of(case.sequences, front)] if front else []
    if case.recovery == "resume" and case.policy == "swap":
        return [Pass.of(case.sequences, 1, case.length - 1)]
    new = case.length - (case.cached_tokens or 0)
    chunk = min(new, case.chunk_tokens or new)
    return [Pass.of(case.sequences, chunk, case.length - chunk)]


def _company(case: Case) -> Pass:
    context = (case.company_context or 0) if case.company == "decode" else 0
    return Pass([length - context for length in case.company_lengths], [context] * len(case.company_lengths))


def _scratch_bytes(case: Case) -> int:
    """A staging buffer; a probe's three square matrices; what a probe reads and what it writes."""
    matrices = 3 * (case.matrix or 0) ** 2 * dtype_bytes(case.element)
    return (case.staging_bytes or 0) + matrices + 2 * (case.memory_bytes or 0)
