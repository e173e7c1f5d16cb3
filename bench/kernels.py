"""How fast each CPU kernel is beside its torch reference: `stretto bench kernels`.

The shapes are those of the embedded model, SmolLM2-135M: hidden 576, 9 heads and 3 KV heads of 64,
feed-forward 1536, vocabulary 49,152. A figure is the best of several calls, kernel and reference in turns: a
busy machine only ever adds time. Weights and KV rotate through more memory than the caches hold, as they do
in a model.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from stretto.bench.options import described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, report_options
from stretto.kernels import threads

threads.configure()

import torch  # noqa: E402  (the pool reads its settings when torch is loaded)
import torch.nn.functional as F  # noqa: E402

from stretto.kernels.apply_controls import BANS, BIAS, PENALTIES, State, apply_controls  # noqa: E402
from stretto.kernels.apply_controls import reference as controls_reference  # noqa: E402
from stretto.kernels.linear import Linear  # noqa: E402
from stretto.kernels.linear.stepped import Stepped  # noqa: E402
from stretto.kernels.logprobs import logprobs  # noqa: E402
from stretto.kernels.logprobs import reference as logprobs_reference  # noqa: E402
from stretto.kernels.paged_attention import paged_attention  # noqa: E402
from stretto.kernels.paged_attention import reference as attention_reference  # noqa: E402
from stretto.kernels.rms_norm import reference as norm_reference  # noqa: E402
from stretto.kernels.rms_norm import rms_norm  # noqa: E402
from stretto.kernels.rope_and_cache import reference as rope_reference  # noqa: E402
from stretto.kernels.rope_and_cache import rope_and_cache  # noqa: E402
from stretto.kernels.sample import State as SampleState  # noqa: E402
from stretto.kernels.sample import reference as sample_reference  # noqa: E402
from stretto.kernels.sample import sample  # noqa: E402
from stretto.kernels.silu_and_mul import reference as silu_reference  # noqa: E402
from stretto.kernels.silu_and_mul import silu_and_mul  # noqa: E402

HIDDEN, HEADS, KV_HEADS, DIM, WIDTH, VOCABULARY, PAGE = 576, 9, 3, 64, 1536, 49152, 16
COPIES = 20
"""Layers' worth of weights or KV that calls rotate through: 20 gate-up matrices are 71 MB in float16."""
BYTES = {"none": 2, "4-bit steps": 20 / 32, "int8": 66 / 64, "int4": 20 / 32}
"""Bytes of a weight, by how it is stored: scales and minima are float16."""
Call = Callable[[int], Any]
"""One call of an op; the argument counts the calls."""


class Case(NamedTuple):
    """One op at one shape; `work` is the bytes or the floating-point operations of a call."""

    op: str
    shape: str
    kernel: Call
    reference: Call
    work: float
    unit: str


class Row(NamedTuple):
    """Milliseconds per call, and the kernel's rate."""

    op: str
    shape: str
    kernel_ms: float
    torch_ms: float
    ratio: float
    """torch's time over the kernel's."""
    rate: float
    unit: str


def always(function: Callable[..., Any], *args: Any) -> Call:
    """The same call every time."""
    return lambda turn: function(*args)


def rotating(function: Callable[..., Any], variants: Sequence[tuple[Any, ...]]) -> Call:
    """Calls with each of the argument lists in turn."""
    return lambda turn: function(*variants[turn % len(variants)])


def norms() -> Iterator[Case]:
    weight = torch.rand(HIDDEN)
    for rows in (1, 64, 256):
        out, x, residual = (torch.randn(rows, HIDDEN) for _ in range(3))
        args = (out, x, weight, 1e-5, residual)
        calls = always(rms_norm, *args), always(norm_reference.rms_norm, *args)
        yield Case("rms_norm", f"{rows} rows", *calls, 16 * out.numel(), "GB/s")


def gates() -> Iterator[Case]:
    for rows in (1, 64, 256):
        args = torch.empty(rows, WIDTH), torch.randn(rows, 2 * WIDTH)
        calls = always(silu_and_mul, *args), always(silu_reference.silu_and_mul, *args)
        yield Case("silu_and_mul", f"{rows} rows", *calls, 12 * rows * WIDTH, "GB/s")


def ropes() -> Iterator[Case]:
    for rows in (1, 64, 256):
        qkv = torch.randn(rows, HEADS + 2 * KV_HEADS, DIM)
        parts, caches = qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=1), torch.zeros(2, 64, PAGE, KV_HEADS, DIM)
        positions, slots = torch.arange(rows, dtype=torch.int32), torch.randperm(64 * PAGE)[:rows]
        args = (*parts, torch.rand(2048, DIM), positions, slots, *caches)
        calls = always(rope_and_cache, *args), always(rope_reference.rope_and_cache, *args)
        yield Case("rope_and_cache", f"{rows} tokens", *calls, 8 * qkv.numel(), "GB/s")


def attentions() -> Iterator[Case]:
    for sequences, rows, length in ((1, 1, 2048), (8, 1, 256), (64, 1, 192), (1, 256, 256), (1, 256, 2048)):
        pages = -(-length // PAGE)
        caches = torch.randn(COPIES, 2, sequences * pages, PAGE, KV_HEADS, DIM)
        tables = torch.randperm(sequences * pages).int().view(sequences, pages)
        starts = torch.arange(sequences + 1, dtype=torch.int32) * rows
        lengths = torch.full((sequences,), length, dtype=torch.int32)
        q, out = torch.randn(2, sequences * rows, HEADS, DIM)
        variants = [(out, q, *kv, tables, starts, lengths, DIM**-0.5) for kv in caches]
        kernel = rotating(paged_attention, variants)
        plain = rotating(attention_reference.paged_attention, variants)
        pairs = sequences * rows * (length - (rows - 1) / 2)
        work = (pairs * KV_HEADS * DIM * 8, "GB/s") if rows == 1 else (pairs * HEADS * DIM * 4, "GFLOP/s")
        yield Case("paged_attention", f"{sequences} x {rows} rows on {length}", kernel, plain, *work)


def linears() -> Iterator[Case]:
    for width, depth in ((2 * WIDTH, HIDDEN), (HIDDEN, WIDTH), (VOCABULARY, HIDDEN)):
        weights = [torch.randn(width, depth).half() for _ in range(COPIES if width < VOCABULARY else 1)]
        layers = {
            kind: [Linear(weight, None, kind) for weight in weights] for kind in ("none", "int8", "int4")
        }
        layers["4-bit steps"] = [Linear(any_steps(width, depth)) for _ in weights]
        wide = [weight.float() for weight in weights]
        packed = [torch.ops.quantized.linear_prepack_fp16(weight, None) for weight in wide]
        for rows in (1, 8, 32, 64, 256, 512):
            x, out, size = torch.randn(rows, depth), torch.empty(rows, width), width * depth
            shape = f"{rows} x {depth} x {width}"
            rates = {
                kind: (each * size, "GB/s") if rows < 32 else (2 * rows * size, "GFLOP/s")
                for kind, each in BYTES.items()
            }
            kernels = {
                kind: rotating(Linear.__call__, [(layer, x, out) for layer in some])
                for kind, some in layers.items()
            }
            plain = rotating(F.linear, [(x, weight) for weight in wide])
            fbgemm = rotating(torch.ops.quantized.linear_dynamic_fp16, [(x, weight) for weight in packed])
            yield Case("linear float16", shape, kernels["none"], plain, *rates["none"])
            yield Case("linear float16 (torch: fbgemm)", shape, kernels["none"], fbgemm, *rates["none"])
            for kind in ("4-bit steps", "int8", "int4"):
                yield Case(f"linear {kind}", shape, kernels[kind], plain, *rates[kind])


def any_steps(width: int, depth: int) -> Stepped:
    """A matrix of 4-bit steps, in groups of 32."""
    words = torch.randint(-(2**31), 2**31, (width, depth // 8), dtype=torch.int64).int()
    scales, minima = torch.randn(2, width, depth // 32).half()
    return Stepped(words, scales, minima, depth)


def samples() -> Iterator[Case]:
    filters = {
        "greedy": (0, 0, 1.0),
        "unfiltered": (1, 0, 1.0),
        "top-k 50": (1, 50, 1.0),
        "top-p 0.9": (1, 0, 0.9),
    }
    for rows, (name, (temperature, top_k, top_p)) in itertools.product((1, 64), filters.items()):
        heat, p, m = (torch.full((rows,), float(value)) for value in (temperature, top_p, 0))
        most, index = torch.full((rows,), top_k, dtype=torch.int32), torch.arange(rows)
        last, tokens = torch.empty(2, rows, dtype=torch.int32)
        state = SampleState(heat, most, p, m, index, last)
        args = (torch.randn(rows, VOCABULARY) * 3, index, index, state, tokens)
        calls = always(sample, *args), always(sample_reference.sample, *args)
        yield Case("sample", f"{rows} x {VOCABULARY}, {name}", *calls, 4 * rows * VOCABULARY, "GB/s")


def controls() -> Iterator[Case]:
    """Each slot's output has 500 tokens, and its bans end with a bad word of two."""
    kinds = {"bias": BIAS, "bans": BANS, "penalties": PENALTIES, "all": BIAS | BANS | PENALTIES}
    for rows, (name, kind) in itertools.product((1, 64), kinds.items()):
        index = torch.arange(rows)
        seen = torch.zeros(rows, VOCABULARY, dtype=torch.int32)
        seen[:, torch.randperm(VOCABULARY)[:500]] = 2
        state = State(
            kinds=torch.full((rows,), kind, dtype=torch.int32),
            bias=torch.zeros(rows, VOCABULARY),
            bans=torch.tensor([-1, 2, 2, 5, 7, 0], dtype=torch.int32).repeat(rows, 1),
            seen=seen,
            history=torch.zeros(rows, 2049, dtype=torch.int32),
            prompt_lengths=torch.zeros(rows, dtype=torch.int32),
            min_tokens=torch.zeros(rows, dtype=torch.int32),
            presence=torch.full((rows,), 1e-6),
            frequency=torch.full((rows,), 1e-6),
            repetition=torch.full((rows,), 1.0),
        )
        args = (torch.randn(rows, VOCABULARY), index, index, index.new_full((rows,), 500), state)
        calls = always(apply_controls, *args), always(controls_reference.apply_controls, *args)
        passes = {"bias": 12, "bans": 0, "penalties": 4, "all": 16}[name]
        yield Case("apply_controls", f"{rows} rows, {name}", *calls, passes * rows * VOCABULARY, "GB/s")


def likelihoods() -> Iterator[Case]:
    for rows, width in itertools.product((1, 64), (0, 5, 20)):
        args = (
            torch.randn(rows, VOCABULARY) * 3,
            torch.zeros(rows, dtype=torch.int32),
            torch.empty(rows),
            torch.empty(rows, dtype=torch.int32),
            torch.empty(rows, width, dtype=torch.int32),
            torch.empty(rows, width),
        )
        calls = always(logprobs, *args), always(logprobs_reference.logprobs, *args)
        shape = f"{rows} x {VOCABULARY}, top {width}"
        yield Case("logprobs", shape, *calls, 4 * rows * VOCABULARY, "GB/s")


def best_of(calls: list[Call], seconds: float) -> list[float]:
    """Milliseconds of each call's fastest run, taken in turns until each has had its time."""
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds * len(calls)
    for turn in itertools.count():
        for index, call in enumerate(calls):
            start = time.perf_counter()
            call(turn)
            best[index] = min(best[index], 1e3 * (time.perf_counter() - start))
        if turn >= 2 and time.perf_counter() > end:
            return best
    raise AssertionError


def measure(only: str, seconds: float) -> Iterator[Row]:
    """Rows of the ops whose name contains `only`."""
    for cases in (norms, gates, ropes, attentions, linears, controls, samples, likelihoods):
        for case in cases():
            if only in case.op:
                case.kernel(0), case.reference(0)
                kernel, reference = best_of([case.kernel, case.reference], seconds)
                ratio, rate = reference / kernel, case.work / kernel / 1e6
                yield Row(case.op, case.shape, kernel, reference, ratio, rate, case.unit)


@click.command("kernels", help=described(__doc__))
@click.option("--only", default="", help="Ops whose name contains this.")
@click.option("--seconds", default=0.2, show_default=True, help="Time per kernel and per reference.")
@report_options
def main(only: str, seconds: float, json_file: Path | None, plot_file: Path | None) -> None:
    """Measure and report; a row is printed as soon as it is measured."""
    report, rows = Report("kernels", json_file, plot_file), []
    print(f"{'op':<31}{'shape':<25}{'kernel ms':>10}{'torch ms':>10}{'ratio':>7}{'rate':>8}")
    for row in measure(only, seconds):
        line = f"{row.kernel_ms:10.3f}{row.torch_ms:10.3f}{row.ratio:7.1f}{row.rate:8.1f} {row.unit}"
        print(f"{row.op:<31}{row.shape:<25}{line}", flush=True)
        rows.append(row)
    bars = {"torch's time / the kernel's": [row.ratio for row in rows]}
    names = [f"{row.op}, {row.shape}" for row in rows]
    figures = {"threads": torch.get_num_threads(), "kernels": [row._asdict() for row in rows]}
    report.publish(figures, Chart("CPU kernels beside torch", "bars", names, bars, log_y=True))


if __name__ == "__main__":
    main()
