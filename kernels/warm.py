"""All compilation at start-up, so that no request waits for it.

Several processes may do it together: each takes the kernels that no other is at work on, and finds the
others' in the cache.

Measured (Zen 5): for one head size and one weight type 8 s of processor time cold, of which attention
3.3 and sampling 2; 0.3 s from the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from stretto.kernels.apply_controls.cpu import apply_controls_kernel
from stretto.kernels.cache import Busy
from stretto.kernels.linear import cpu, integer, quantized, rounding, stepped, widened
from stretto.kernels.logprobs.cpu import logprobs_kernel
from stretto.kernels.paged_attention.cpu import attention
from stretto.kernels.pool import Kernel
from stretto.kernels.program import program_kernel
from stretto.kernels.rms_norm.cpu import rms_norm_kernel
from stretto.kernels.rope_and_cache.cpu import rotation
from stretto.kernels.sample.cpu import sample_kernel
from stretto.kernels.silu_and_mul.cpu import silu_and_mul_kernel

Kernels = Mapping[str, Kernel]
Progress = Callable[[str], None]


class Network(NamedTuple):
    """What decides which kernels a decoder calls."""

    head_dim: int
    group: int
    """Query heads per KV head."""
    kv_bytes: int = 4
    """Of a number in the KV cache."""
    weights: tuple[str, ...] = ()
    """How linear layers store them: names of torch's types, of `quantized.FORMATS` or `stepped.KERNELS`."""

    def kernels(self) -> dict[str, Kernel]:
        """By name, in a good order: what is quickly compiled and shows whether anything has to be, then what
        takes longest.
        """
        found = {"rms_norm": rms_norm_kernel, "rope_and_cache": rotation(self.kv_bytes)}
        for name in self.weights:
            found |= linear(name)
        return found | {
            "paged_attention": attention(self.head_dim, self.group, self.kv_bytes),
            "silu_and_mul": silu_and_mul_kernel,
            "program": program_kernel,
        }


def linear(weights: str) -> dict[str, Kernel]:
    """What layers call that store their weights so; quantized ones are made with one of them."""
    if weights in stepped.KERNELS:
        return widened.kernels(weights)
    if form := quantized.FORMATS.get(weights):
        return {
            f"rounding to {weights}": rounding.rounding(form),
            f"linear {weights}": integer.product(form),
            f"rows of {weights}": integer.gather(form),
        }
    dtype = getattr(torch, weights, None)
    return {f"linear {weights}": cpu.product(dtype)} if dtype in cpu.DTYPES else {}


def sampler() -> dict[str, Kernel]:
    """What becomes of logits."""
    return {
        "sample": sample_kernel,
        "apply_controls": apply_controls_kernel,
        "logprobs": logprobs_kernel,
    }


def are_cached(kernels: Kernels) -> bool:
    """Load kernels until one is not in the cache; whether all are. That one is compiled by us, or another."""
    try:
        return not any(kernel.compile(wait=False) for kernel in kernels.values())
    except Busy:
        return False


def compile_all(kernels: Kernels, progress: Progress = lambda text: None) -> None:
    """Compile kernels, or load them from the cache; once it turns out that they have to be compiled, progress
    is told in a few words what comes next. Those that other processes compile are waited for at the end.
    """
    left, compiling = dict(kernels), False
    for wait in (False, True):
        for name, kernel in list(left.items()):
            if compiling:
                progress(f"compiling kernels {len(kernels) - len(left) + 1}/{len(kernels)}: {name}")
            try:
                compiling |= kernel.compile(wait)
                del left[name]
            except Busy:
                compiling = True
