"""What a step does beside attention and matrix products on a GPU, as a share of the measured copy bandwidth.

    python -m stretto.bench.gpu_ops [--tiny]

64 sequences of an 8B Llama in bfloat16, and its vocabulary of 128,256; `bench.gpu_kernels` says how times are
taken. Norms, gates and page moves should run at copy bandwidth once there is enough to move. What handles 64
numbers is a matter of microseconds, and has no share worth the name.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from stretto.bench.gpu_kernels import DIM, KV_HEADS, PAGE, Case, main
from stretto.kernels.apply_controls import PENALTIES, State, apply_controls
from stretto.kernels.copy_pages import copy_pages
from stretto.kernels.logprobs import logprobs
from stretto.kernels.move_pages import gather_pages, scatter_pages
from stretto.kernels.prepare_step import Deltas, SlotState, StepInputs, prepare_step
from stretto.kernels.rms_norm import rms_norm
from stretto.kernels.sample import State as SampleState
from stretto.kernels.sample import sample
from stretto.kernels.silu_and_mul import silu_and_mul

HIDDEN, INNER, VOCABULARY, LAYERS = 4096, 14336, 128256, 32
FILTERS = {
    "greedy": (0.0, 0, 1.0, 0.0),
    "no filter": (1.0, 0, 1.0, 0.0),
    "top-p 0.95": (1.0, 0, 0.95, 0.0),
    "top-k 50, top-p 0.95": (0.7, 50, 0.95, 0.0),
}
"""Temperature, top-k, top-p and min-p."""


def norm(device: torch.device, dtype: torch.dtype, rows: int, width: int) -> Case:
    """Residual and norm: the residual is read and written in float32."""
    x, weight = (torch.rand(shape, device=device).to(dtype) for shape in ((rows, width), (width,)))
    residual = torch.rand(rows, width, device=device)
    moved = rows * width * (2 * dtype.itemsize + 8)
    return Case(
        "residual and norm", f"{rows} x {width}", lambda: rms_norm(x, x, weight, 1e-5, residual), moved
    )


def gate(device: torch.device, dtype: torch.dtype, rows: int, width: int) -> Case:
    """SiLU and multiply."""
    gate_up = torch.rand(rows, 2 * width, device=device).to(dtype)
    out = torch.empty(rows, width, dtype=dtype, device=device)
    moved = 3 * rows * width * dtype.itemsize
    return Case("gate", f"{rows} x {width}", lambda: silu_and_mul(out, gate_up), moved)


def draw(device: torch.device, rows: int, vocabulary: int, filters: str) -> Case:
    """Sampling, with the same parameters in every row. Logits are read once at the least."""
    logits = torch.randn(rows, vocabulary, device=device) * 3
    temperature, k, top_p, min_p = FILTERS[filters]
    heat, p, m = (torch.full((rows,), value, device=device) for value in (temperature, top_p, min_p))
    most = torch.full((rows,), k, dtype=torch.int32, device=device)
    index, last, out = torch.arange(rows, device=device), torch.empty_like(most), torch.empty_like(most)
    arguments = (logits, index, index, SampleState(heat, most, p, m, index, last), out)
    return Case(
        f"sample, {filters}", f"{rows} x {vocabulary}", lambda: sample(*arguments), logits.numel() * 4
    )


def penalise(device: torch.device, rows: int, vocabulary: int) -> Case:
    """Penalties in every row: logits are read and written, counts are read."""
    logits = torch.randn(rows, vocabulary, device=device)
    kinds = torch.full((rows,), PENALTIES, dtype=torch.int32, device=device)
    counts = torch.zeros(rows, vocabulary, dtype=torch.int32, device=device)
    ones, at = torch.ones(rows, device=device), torch.arange(rows, device=device)
    state = State(kinds, logits, counts, counts, counts, kinds, kinds, ones, ones, ones)
    moved = 12 * rows * vocabulary
    return Case(
        "penalties", f"{rows} x {vocabulary}", lambda: apply_controls(logits, at, at, at, state), moved
    )


def score(device: torch.device, rows: int, vocabulary: int) -> Case:
    """Log-probabilities with 20 alternatives."""
    logits = torch.randn(rows, vocabulary, device=device)
    tokens = torch.arange(rows, dtype=torch.int32, device=device)
    values, top = torch.empty(rows, device=device), torch.empty(rows, 20, device=device)
    arguments = (logits, tokens, values, torch.empty_like(tokens), top.int(), top)
    return Case(
        "log-probabilities", f"{rows} x {vocabulary}", lambda: logprobs(*arguments), logits.numel() * 4
    )


def pages(device: torch.device, dtype: torch.dtype, count: int, layers: int) -> Iterator[Case]:
    """Copies within the pool, and moves between it and a page-first buffer."""
    shape = (layers, 2 * count, PAGE, KV_HEADS, DIM)
    k, v = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
    buffer = torch.zeros(count, layers, 2, *shape[2:], dtype=dtype, device=device)
    where = torch.randperm(2 * count, device=device).int()
    pairs, some, moved = where.view(count, 2), where[:count], 2 * buffer.numel() * dtype.itemsize
    yield Case("page copy", f"{count} pages", lambda: copy_pages(k, v, pairs), moved)
    yield Case("page gather", f"{count} pages", lambda: gather_pages(k, v, some, buffer), moved)
    yield Case("page scatter", f"{count} pages", lambda: scatter_pages(k, v, some, buffer), moved)


def prepare(device: torch.device, sequences: int, pages_per_slot: int) -> Case:
    """The inputs of a step of decodes alone, each at half of its context."""

    def whole(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int32, device=device)

    def long() -> torch.Tensor:
        return torch.zeros(sequences, dtype=torch.int64, device=device)

    slots, tables = sequences + 1, whole(sequences, pages_per_slot)
    half = whole(slots) + pages_per_slot // 2
    state = SlotState(half * PAGE, half + 64, whole(slots, pages_per_slot), whole(slots))
    counts = torch.tensor([0, 0, 0, sequences], dtype=torch.int32, device=device)
    decodes = torch.arange(sequences, dtype=torch.int32, device=device)
    deltas = Deltas(counts, whole(1, 2), whole(1, 2), whole(1, 3), whole(1), decodes)
    rows = (
        whole(sequences),
        whole(sequences),
        long(),
        long(),
        whole(sequences + 1),
        whole(sequences),
        tables,
    )
    inputs, moved = StepInputs(*rows, long(), long(), long()), 4 * sequences * pages_per_slot
    return Case(
        "preparation", f"{sequences} decodes", lambda: prepare_step(state, deltas, inputs, PAGE), moved
    )


def cases(device: torch.device, dtype: torch.dtype, tiny: bool) -> Iterator[Case]:
    """All cases, each made when it is its turn."""
    rows, width, inner, vocabulary = (2, 64, 96, 100) if tiny else (64, HIDDEN, INNER, VOCABULARY)
    yield norm(device, dtype, rows, width)
    yield gate(device, dtype, rows, inner)
    if not tiny:
        yield norm(device, dtype, 8192, width)
        yield gate(device, dtype, 8192, inner)
    for filters in FILTERS:
        yield draw(device, rows, vocabulary, filters)
    yield penalise(device, rows, vocabulary)
    yield score(device, rows, vocabulary)
    yield from pages(device, dtype, *((2, 2) if tiny else (64, LAYERS)))
    yield prepare(device, rows, 16 if tiny else 512)


if __name__ == "__main__":
    main(cases)
