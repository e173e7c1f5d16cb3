"""All compilation at start-up, so that no request waits for it.

Measured (Zen 5): for one head size and one weight type 8 s of processor time cold, 0.3 s from the
cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stretto.kernels.apply_controls.cpu import apply_controls_kernel
from stretto.kernels.logprobs.cpu import logprobs_kernel
from stretto.kernels.paged_attention.cpu import attention
from stretto.kernels.pool import Kernel
from stretto.kernels.program import program_kernel
from stretto.kernels.rms_norm.cpu import rms_norm_kernel
from stretto.kernels.rope_and_cache.cpu import rotation
from stretto.kernels.sample.cpu import sample_kernel
from stretto.kernels.silu_and_mul.cpu import silu_and_mul_kernel


def network(head_dim: int, group: int, kv_bytes: int = 4) -> dict[str, Kernel]:
    """What a decoder calls beside its linear layers. group: query heads per KV head; kv_bytes: of a number in
    the KV cache.
    """
    return {
        "rms_norm": rms_norm_kernel,
        "rope_and_cache": rotation(kv_bytes),
        "silu_and_mul": silu_and_mul_kernel,
        "paged_attention": attention(head_dim, group, kv_bytes),
        "program": program_kernel,
    }


def sampler() -> dict[str, Kernel]:
    """What becomes of logits."""
    return {
        "sample": sample_kernel,
        "apply_controls": apply_controls_kernel,
        "logprobs": logprobs_kernel,
    }


def compile_all(kernels: Mapping[str, Kernel], progress: Callable[[str], None] = lambda text: None) -> None:
    """Compile kernels, or load them from the cache; once it turns out that they have to be compiled, progress
    is told in a few words what comes next.
    """
    compiling = False
    for index, (name, kernel) in enumerate(kernels.items(), start=1):
        if compiling:
            progress(f"compiling kernels {index}/{len(kernels)}: {name}")
        compiling |= kernel.compile()
