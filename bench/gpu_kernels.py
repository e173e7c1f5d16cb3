"""Attention and cache writes on a GPU, as a share of what its memory and its tensor cores can do.

    python -m stretto.bench.gpu_kernels [--tiny]

The shapes are those of an 8B Llama: 32 query heads, 8 KV heads of 128, pages of 16 tokens in no order. The
yardsticks are measured in the same process: a copy of 1 GiB, read and written, and a product of two square
matrices. Decoding 64 sequences of 4,096 tokens reads 1 GiB of keys and values, far more than any cache holds,
and should come to 80 % of the copy; why it can is said in `kernels/paged_attention/triton_plan.py`. A chunk
of 16 rows over a long context should come near that too: its few blocks of rows share out the keys.

Calls are captured in a graph, so that no figure has the host's time in it. Without a GPU the same calls are
made on the CPU, which proves the bench and measures nothing of interest; --tiny makes that quick.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from stretto.kernels.paged_attention import paged_attention
from stretto.kernels.rope_and_cache import rope_and_cache

HEADS, KV_HEADS, DIM, PAGE = 32, 8, 128, 16
FP8 = torch.float8_e4m3fn
CALLS, TRIES = 10, 5


class Case(NamedTuple):
    """One op at one shape, and what a call moves and computes at the least."""

    op: str
    shape: str
    call: Callable[[], object]
    bytes: float
    flops: float = 0.0


Cases = Callable[[torch.device, torch.dtype, bool], Iterator[Case]]
"""From a device, a type, and whether they shall be tiny."""


class Row(NamedTuple):
    """The best of several tries; shares are of the measured copy and matrix product."""

    op: str
    shape: str
    microseconds: float
    gigabytes_per_second: float
    copy_share: float
    teraflops: float
    product_share: float


class Measured(NamedTuple):
    """All cases that there are rows for, and what became of the others, a text each."""

    rows: list[Row]
    failures: list[str]


class Yardsticks(NamedTuple):
    """What the machine can do."""

    bytes_per_second: float
    flops_per_second: float


@torch.inference_mode()
def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Of one call, the best of several tries of several calls. All graphs of a process are captured in
    inference mode: torch keeps a tensor that is written at every capture.
    """
    call()
    if device.type != "cuda":
        return min(_host_seconds(call) for _ in range(TRIES))
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize(device)
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return min(_graph_seconds(graph) for _ in range(TRIES)) / CALLS


def _host_seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _graph_seconds(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def yardsticks(device: torch.device, dtype: torch.dtype, tiny: bool) -> Yardsticks:
    """Measure the copy and the product."""
    size, side = (1 << 16, 64) if tiny else (1 << 30, 8192)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = 2 * size / seconds(lambda: target.copy_(source), device)
    left = torch.randn(side, side, device=device).to(dtype)
    out = torch.empty_like(left)
    return Yardsticks(copy, 2 * side**3 / seconds(lambda: torch.mm(left, left, out=out), device))


def decode(device: torch.device, dtype: torch.dtype, sequences: int, length: int) -> Case:
    """One row for each of some sequences of equal length."""
    call = _attention(device, dtype, dtype, [1] * sequences, length)
    moved = 2 * sequences * length * KV_HEADS * DIM * dtype.itemsize
    return Case("decode attention", f"{sequences} x {length}", call, moved)


def decode_fp8(device: torch.device, dtype: torch.dtype, sequences: int, length: int) -> Case:
    """The same over an fp8 cache."""
    call = _attention(device, dtype, FP8, [1] * sequences, length)
    return Case(
        "decode attention, fp8", f"{sequences} x {length}", call, 2 * sequences * length * KV_HEADS * DIM
    )


def extend(
    device: torch.device,
    dtype: torch.dtype,
    rows: Sequence[int],
    length: int,
    cache_dtype: torch.dtype | None = None,
) -> Case:
    """The last rows of prompts of equal length."""
    held = cache_dtype or dtype
    call = _attention(device, dtype, held, rows, length)
    seen = sum(count * (length - count) + count * (count + 1) / 2 for count in rows)
    moved = 2 * DIM * (len(rows) * length * KV_HEADS * held.itemsize + sum(rows) * HEADS * dtype.itemsize)
    shape = f"{' + '.join(map(str, rows))} of {length}"
    op = "prompt attention" if held is dtype else "prompt attention, fp8"
    return Case(op, shape, call, moved, 4 * seen * HEADS * DIM)


def _attention(
    device: torch.device, dtype: torch.dtype, cache_dtype: torch.dtype, rows: Sequence[int], length: int
) -> Callable[[], object]:
    pages, sequences = -(-length // PAGE), len(rows)
    tables = torch.randperm(sequences * pages).int().view(sequences, pages).to(device)
    shape = (sequences * pages, PAGE, KV_HEADS, DIM)
    k_cache, v_cache = (torch.rand(shape, dtype=dtype, device=device).to(cache_dtype) for _ in range(2))
    scale = torch.ones(KV_HEADS, device=device) if cache_dtype.itemsize == 1 else None
    q = torch.randn(sum(rows), HEADS, DIM, device=device).to(dtype)
    out, starts = torch.empty_like(q), torch.tensor([0, *rows]).cumsum(0).int().to(device)
    lengths = torch.full((sequences,), length, dtype=torch.int32, device=device)
    cache = (k_cache, v_cache, tables, starts, lengths)
    several = [count for count in rows if count > 1]
    options: dict[str, Any] = {"k_scale": scale, "v_scale": scale, "chunks": (len(several), sum(several))}
    return lambda: paged_attention(out, q, *cache, DIM**-0.5, **options)


def rope(device: torch.device, dtype: torch.dtype, tokens: int) -> Case:
    """Rotary embedding and cache write of some tokens."""
    qkv = torch.randn(tokens, HEADS + 2 * KV_HEADS, DIM, device=device).to(dtype)
    q, k, v = qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    k_cache, v_cache = torch.empty(2, -(-tokens // PAGE), PAGE, KV_HEADS, DIM, dtype=dtype, device=device)
    slots = torch.randperm(tokens).to(device)
    angles, positions = torch.randn(tokens, DIM, device=device), slots.int()
    moved = 2 * qkv.numel() * dtype.itemsize + angles.numel() * 4
    arguments = (q, k, v, angles, positions, slots, k_cache, v_cache)
    return Case("rotary and cache write", f"{tokens}", lambda: rope_and_cache(*arguments), moved)


def cases(device: torch.device, dtype: torch.dtype, tiny: bool) -> Iterator[Case]:
    """All cases, each made when it is its turn."""
    if tiny:
        yield decode(device, dtype, 2, 40)
        yield extend(device, dtype, [1, 8], 40)
        yield rope(device, dtype, 3)
        return
    yield decode(device, dtype, 64, 4096)
    yield decode(device, dtype, 8, 32768)
    yield decode(device, dtype, 256, 512)
    yield decode_fp8(device, dtype, 64, 4096)
    yield extend(device, dtype, [2048], 2048)
    yield extend(device, dtype, [2048], 32768)
    yield extend(device, dtype, [16], 32768)
    yield extend(device, dtype, [16], 102400)
    yield extend(device, dtype, [16], 102400, FP8)
    yield extend(device, dtype, [1, 300], 32768)
    yield rope(device, dtype, 64)
    yield rope(device, dtype, 8192)


def measure(device: torch.device, tiny: bool, best: Yardsticks, cases: Cases = cases) -> Measured:
    """Time all cases, in bfloat16, whatever becomes of each; on the CPU that makes them plain torch."""
    measured = Measured([], [])
    for case in cases(device, torch.bfloat16, tiny):
        try:
            measured.rows.append(_row(case, seconds(case.call, device), best))
        except Exception as error:
            measured.failures.append(f"{case.op} {case.shape}: {type(error).__name__}: {error}")
    return measured


def _row(case: Case, took: float, best: Yardsticks) -> Row:
    moved, computed = case.bytes / took, case.flops / took
    shares = moved / best.bytes_per_second, computed / best.flops_per_second
    return Row(case.op, case.shape, took * 1e6, moved / 1e9, shares[0], computed / 1e12, shares[1])


def main(cases: Cases = cases) -> None:
    """Run the command line; a JSON line a case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, to prove the bench")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    best = yardsticks(device, torch.bfloat16, options.tiny)
    measured = measure(device, options.tiny, best, cases)
    for row in measured.rows:
        print(json.dumps(row._asdict()))
    if measured.failures:
        raise SystemExit("\n".join(measured.failures))


if __name__ == "__main__":
    main()
