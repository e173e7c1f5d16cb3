"""Every Triton kernel against its reference: odd shapes, shuffled pages, outputs full of NaN.

The reference runs on the CPU, the kernel on the given device: on a GPU for real, on the CPU under Triton's
interpreter, which somebody must have asked for before Triton was imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from stretto.kernels.apply_controls.state import BANS, BIAS, PENALTIES, State
from stretto.kernels.paged_attention import triton_plan
from stretto.kernels.prepare_step.state import Deltas, SlotState, StepInputs
from stretto.kernels.sample.state import State as SampleState

TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Absolute and relative, for values of the order of 1: a few roundings of the type. What is no float, and
float32 of an exact case, is equal to the bit."""
NAN = float("nan")


class Case(NamedTuple):
    """A call, and which of its arguments it writes."""

    shape: str
    function: str
    arguments: tuple[Any, ...]
    written: tuple[int, ...]
    options: Mapping[str, Any] = MappingProxyType({})
    exact: bool = False
    plans: tuple[Mapping[str, Any], ...] = (MappingProxyType({}),)
    """Constants of `triton_plan`, of a run each: all runs leave the same bits."""


class Verified(NamedTuple):
    """What became of an op's cases."""

    cases: int
    failures: list[str]
    """What is wrong, a text for each case that is off or cannot be run."""


def verify(op: str, device: torch.device, tiny: bool = False) -> Verified:
    """Run all cases of an op, whatever becomes of each."""
    torch.manual_seed(0)
    kernel, reference = (import_module(f"stretto.kernels.{op}.{kind}") for kind in ("triton", "reference"))
    count, failures = 0, []
    for case in CASES[op](tiny):
        count += 1
        try:
            check(f"{op} {case.shape}", case, getattr(kernel, case.function), reference, device)
        except Exception as error:  # a kernel that does not compile, too, costs its own case alone
            failures.append(f"{op} {case.shape}: {type(error).__name__}: {error}")
    return Verified(count, failures)


def check(name: str, case: Case, kernel: Callable[..., None], reference: Any, device: torch.device) -> None:
    """Run one case. Raises AssertionError where it is off, and whatever the kernel raises."""
    host = torch.device("cpu")
    here, runs = to(case.arguments, host), [_run(case, kernel, device, plan) for plan in case.plans]
    getattr(reference, case.function)(*here, **to(case.options, host))
    for number in case.written:
        compare(name, runs[0][number], here[number], case.exact)
        for plan, run in zip(case.plans[1:], runs[1:], strict=True):
            compare(f"{name}, {dict(plan)}", run[number], to(runs[0][number], host), exact=True)


def _run(case: Case, kernel: Callable[..., None], device: torch.device, plan: Mapping[str, Any]) -> Any:
    """The arguments as the kernel leaves them."""
    arguments = to(case.arguments, device)
    with patch.multiple(triton_plan, **plan) if plan else nullcontext():
        kernel(*arguments, **to(case.options, device))
    return arguments


def to(value: Any, device: torch.device) -> Any:
    """A copy of arguments, with all tensors there."""
    if isinstance(value, torch.Tensor):
        return value.clone().to(device)
    if isinstance(value, Mapping):
        return {name: to(each, device) for name, each in value.items()}
    if isinstance(value, tuple):
        made = [to(each, device) for each in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    return value


def compare(name: str, found: Any, expected: Any, exact: bool) -> None:
    """Raises AssertionError where tensors differ by more than their type explains."""
    if isinstance(expected, tuple):
        for part, (one, other) in enumerate(zip(found, expected, strict=True)):
            compare(f"{name}, part {part}", one, other, exact)
        return
    one, close = found.cpu(), expected.is_floating_point() and not exact
    bound = TOLERANCE.get(expected.dtype, 0.0) if close else 0.0
    if expected.is_floating_point():
        one, expected = one.float(), expected.float()
    torch.testing.assert_close(
        one, expected, rtol=bound, atol=bound, equal_nan=True, msg=lambda text: f"{name}: {text}"
    )


def rms_norm(tiny: bool) -> Iterator[Case]:
    for dtype in TOLERANCE:
        for rows, width in [(3, 63), (5, 500)] if tiny else [(3, 63), (7, 4096), (513, 2048)]:
            x, weight = torch.randn(rows, width).to(dtype), torch.rand(width).to(dtype)
            out, residual = torch.full_like(x, NAN), torch.randn(rows, width)
            yield Case(f"{rows} x {width} {dtype}", "rms_norm", (out, x, weight, 1e-5), (0,))
            yield Case(f"{rows} x {width} {dtype} +", "rms_norm", (out, x, weight, 1e-5, residual), (0, 4))
            heads = torch.randn(3, rows, width).to(dtype).transpose(0, 1)
            normed = (torch.full_like(heads, NAN), heads, weight, 1e-5)
            yield Case(f"{rows} x 3 heads x {width} {dtype}", "rms_norm", normed, (0,))


def silu_and_mul(tiny: bool) -> Iterator[Case]:
    for dtype in TOLERANCE:
        for rows, width in [(3, 63)] if tiny else [(3, 63), (65, 14336)]:
            out = torch.full((rows, width), NAN, dtype=dtype)
            yield Case(
                f"{rows} x {width} {dtype}",
                "silu_and_mul",
                (out, torch.randn(rows, 2 * width).to(dtype)),
                (0,),
            )


def gelu_and_mul(tiny: bool) -> Iterator[Case]:
    for case in silu_and_mul(tiny):
        for tanh in (False, True):
            yield case._replace(function="gelu_and_mul", arguments=(*case.arguments, tanh))


def rope_and_cache(tiny: bool) -> Iterator[Case]:
    for dtype in TOLERANCE:
        for dim in (64,) if tiny else (64, 80, 96, 128, 256):
            rows, q_heads, kv_heads, page = 5, 6, 2, 3
            qkv = torch.randn(rows, q_heads + 2 * kv_heads, dim).to(dtype)
            q, k, v = (part.contiguous() for part in qkv.split([q_heads, kv_heads, kv_heads], dim=1))
            caches = (torch.zeros(4, page, kv_heads, dim, dtype=dtype) for _ in range(2))
            places = torch.randperm(4 * page)[:rows]
            places[2] = -1
            positions = torch.randint(0, 50, (rows,), dtype=torch.int32)
            arguments = (q, k, v, torch.randn(50, dim), positions, places, *caches)
            yield Case(f"{dim} {dtype}", "rope_and_cache", arguments, (0, 6, 7))


def paged_attention(tiny: bool) -> Iterator[Case]:
    """Every combination would take minutes to compile: each type, head size, page size and window once."""
    bfloat16 = torch.bfloat16
    yield from _long_contexts(tiny)
    if tiny:
        yield from (_attention(dtype, 64, 5, 0, [7, 20, 33], [1, 4, 1]) for dtype in TOLERANCE)
        return
    lengths, rows = [7, 1300, 513, 40], [1, 37, 1, 40]
    for dtype, dims in ((torch.float32, (64, 128)), (torch.float16, (128,)), (bfloat16, (64, 80, 96, 256))):
        yield from (_attention(dtype, dim, 16, 0, lengths, rows) for dim in dims)
    for page, window in ((1, 0), (5, 0), (64, 0), (16, 70)):
        yield _attention(bfloat16, 128, page, window, lengths, rows)
    yield _attention(bfloat16, 128, 16, 0, [1, 4097, 600, 511, 512], [1] * 5)


def _long_contexts(tiny: bool) -> Iterator[Case]:
    """Chunks whose splits several programs share, and then one program does all of them: room for one part a
    block is too little to share. In a dry run splits are shorter, and programs fewer.
    """
    dim, chunk, mixed = (64, [8], [1, 9]) if tiny else (128, [16], [1, 300])
    lengths, window = ([70, 140], 70) if tiny else ([33000, 40000], 5000)
    small = {"CHUNK_SPLIT": 64, "CHUNK_PROGRAMS": 12, "JOINED": 64} if tiny else {}
    plans = small, small | {"SCRATCH_LIMIT": 1}
    for cache_dtype in (torch.bfloat16, torch.float8_e4m3fn):
        for rows, seen in ((chunk, 0), (mixed, 0), (mixed, window)):
            case = _attention(torch.bfloat16, dim, 16, seen, lengths[-len(rows) :], rows, cache_dtype)
            yield case._replace(plans=plans)


def _attention(
    dtype: torch.dtype,
    dim: int,
    page: int,
    window: int,
    lengths: list[int],
    rows: list[int],
    cache_dtype: torch.dtype | None = None,
) -> Case:
    """Unused pages hold NaN, and tables are shuffled. An fp8 cache has another scale for each head.

    Queries are long: else every key counts as much as any other, and a mean of many hides each.
    """
    q_heads, kv_heads = 8, 2
    used = [-(-length // page) for length in lengths]
    shuffled = torch.randperm(sum(used) + 3)
    caches = torch.full((2, sum(used) + 3, page, kv_heads, dim), NAN)
    tables = torch.zeros(len(lengths), max(used), dtype=torch.int32)
    for index, count in enumerate(used):
        mine = shuffled[sum(used[:index]) :][:count]
        tables[index, :count] = mine.int()
        caches[:, mine] = torch.randn(2, count, page, kv_heads, dim)
    q = (4 * torch.randn(sum(rows), q_heads, dim)).to(dtype)
    starts = torch.tensor([0, *rows]).cumsum(0).int()
    held = caches.to(cache_dtype or dtype)
    fp8 = held.dtype.itemsize == 1
    scales = {"k_scale": torch.tensor([0.5, 1.5]), "v_scale": torch.tensor([2.0, 0.75])} if fp8 else {}
    return Case(
        f"{dim} in pages of {page}, window {window}, {rows} rows of {lengths}, {dtype} over {held.dtype}",
        "paged_attention",
        (torch.full_like(q, NAN), q, *held, tables, starts, torch.tensor(lengths).int(), dim**-0.5),
        (0,),
        {"window": window, **scales},
    )


def sample(tiny: bool) -> Iterator[Case]:
    rows, vocabulary = (4, 700) if tiny else (37, 128256)
    logits = torch.randn(rows, vocabulary) * 3
    index = torch.arange(rows)
    heat = torch.where(index % 4 == 0, 0.0, 0.5 + index / rows).float()
    top_k = torch.where(index % 3 == 1, 50, 0).int()
    top_p = torch.where(index % 2 == 1, 0.9, 1.0).float()
    min_p = torch.where(index % 5 == 3, 0.05, 0.0).float()
    seeds, positions = index * 2**40 + 17, index * 2**31 + 5
    last, out = torch.full((2, rows), -7, dtype=torch.int32)
    state = SampleState(heat, top_k, top_p, min_p, seeds, last)
    yield Case("", "sample", (logits, index.flip(0), positions, state, out), (3, 4))


def logprobs(tiny: bool) -> Iterator[Case]:
    rows, vocabulary, width = (3, 700, 3) if tiny else (33, 128256, 20)
    tokens = torch.randint(0, vocabulary, (rows,), dtype=torch.int32)
    ints = torch.zeros(rows, dtype=torch.int32), torch.zeros(rows, width, dtype=torch.int32)
    reals = torch.full((rows,), NAN), torch.full((rows, width), NAN)
    arguments = (torch.randn(rows, vocabulary) * 3, tokens, reals[0], ints[0], ints[1], reals[1])
    yield Case("", "logprobs", arguments, (2, 3, 4, 5))


def apply_controls(tiny: bool) -> Iterator[Case]:
    vocabulary, slots = (700, 4) if tiny else (128256, 9)
    bans = torch.zeros(slots, 16, dtype=torch.int32)
    bans[:, :8] = torch.tensor([-2, 5, 6, 2, 9, 11, 0, 0])
    ints = torch.randint(0, 30, (3, slots), dtype=torch.int32)
    state = State(
        kinds=torch.tensor([BIAS, BANS, PENALTIES, BIAS | BANS | PENALTIES, 0, 7, 7, 7, 7][:slots]).int(),
        bias=torch.randn(slots, vocabulary),
        bans=bans,
        seen=torch.randint(0, 5, (slots, vocabulary), dtype=torch.int32),
        history=torch.full((slots, 64), 9, dtype=torch.int32),
        prompt_lengths=ints[0],
        min_tokens=ints[1],
        presence=torch.rand(slots),
        frequency=torch.rand(slots),
        repetition=torch.rand(slots) + 0.5,
    )
    rows = torch.randperm(slots)
    arguments = (torch.randn(slots, vocabulary), rows, rows.flip(0), torch.full((slots,), 40), state)
    yield Case("", "apply_controls", arguments, (0,), exact=True)


def count_tokens(tiny: bool) -> Iterator[Case]:
    seen, history = torch.zeros(5, 99, dtype=torch.int32), torch.zeros(5, 33, dtype=torch.int32)
    slots, tokens = torch.tensor([3, 0, 4]), torch.tensor([98, 0, 7], dtype=torch.int32)
    yield Case("", "count_tokens", (seen, history, slots, torch.tensor([0, 32, 5]), tokens), (0, 1))


def copy_pages(tiny: bool) -> Iterator[Case]:
    for dtype in TOLERANCE:
        caches = torch.randn(2, 3, 8, 5, 2, 6 if dtype is torch.float32 else 64).to(dtype)
        pairs = torch.tensor([[1, 6], [0, 3], [1, 2]], dtype=torch.int32)
        yield Case(str(dtype), "copy_pages", (*caches, pairs), (0, 1), exact=True)


def move_pages(tiny: bool) -> Iterator[Case]:
    for dtype in TOLERANCE:
        caches = torch.randn(2, 3, 8, 5, 2, 64).to(dtype)
        pages, buffer = torch.tensor([6, 1, 3], dtype=torch.int32), torch.randn(3, 3, 2, 5, 2, 64).to(dtype)
        yield Case(f"out {dtype}", "gather_pages", (*caches, pages, buffer), (3,), exact=True)
        yield Case(f"in {dtype}", "scatter_pages", (*caches, pages, buffer), (0, 1), exact=True)


def prepare_step(tiny: bool) -> Iterator[Case]:
    """Two admits, growth, a chunk that samples, one that does not, and decodes; then room that is left."""

    def ints(*values: Any) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32)

    def fresh(count: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.full((count,), -77, dtype=dtype)

    table = torch.arange(7 * 12, dtype=torch.int32).view(7, 12)
    state = SlotState(ints(0, 9, 0, 17, 3, 0, 0), ints(0, 3, 0, 6, 2, 0, 0), table, ints(*range(40, 47)))
    deltas = Deltas(
        counts=ints(2, 5, 2, 3),
        admits=ints((0, 0), (2, 4), (0, 0)),
        appends=ints((2, 90), (0, 91), (2, 92), (0, 93), (2, 94), (0, 0)),
        chunks=ints((0, 6, 1), (2, 5, 0), (0, 0, 0)),
        chunk_ids=ints(*range(11), 0, 0),
        decodes=ints(4, 1, 3, 0),
    )
    rows, long = 20, torch.int64
    starts, lengths, tables = fresh(9), fresh(8), torch.full((8, 12), -77, dtype=torch.int32)
    sampled = (fresh(8, long) for _ in range(3))
    inputs = StepInputs(
        fresh(rows), fresh(rows), fresh(rows, long), fresh(8, long), starts, lengths, tables, *sampled
    )
    yield Case("", "prepare_step", (state, deltas, inputs, 3), (0, 2))


CASES: dict[str, Callable[[bool], Iterator[Case]]] = {
    case.__name__: case
    for case in (
        rms_norm,
        silu_and_mul,
        gelu_and_mul,
        rope_and_cache,
        paged_attention,
        sample,
        logprobs,
        apply_controls,
        count_tokens,
        copy_pages,
        move_pages,
        prepare_step,
    )
}
