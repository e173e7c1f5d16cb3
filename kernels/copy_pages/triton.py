"""Page copies on the GPU: a program for a block of one page in one layer, keys and values."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stretto.kernels.generation import choose

CONFIGS = {80: {"BLOCK": 2048, "num_warps": 4}}
"""16 words of 4 bytes a thread, in accesses of 16 bytes."""


@triton.jit
def copy_pages_kernel(
    k: tl.tensor,
    v: tl.tensor,
    pairs: tl.tensor,
    layers: tl.tensor,
    pages: tl.tensor,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    pair, layer = tl.program_id(0) // layers, tl.program_id(0) % layers
    words = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = tl.load(pairs + 2 * pair).to(tl.int64)
    destination = tl.load(pairs + 2 * pair + 1).to(tl.int64)
    if source >= 0:
        keep, first = words < WORDS, layer.to(tl.int64) * pages
        read, write = (first + source) * WORDS + words, (first + destination) * WORDS + words
        tl.store(k + write, tl.load(k + read, mask=keep), mask=keep)
        tl.store(v + write, tl.load(v + read, mask=keep), mask=keep)


def copy_pages(k_cache: torch.Tensor, v_cache: torch.Tensor, pairs: torch.Tensor) -> None:
    """See `stretto.kernels.copy_pages.copy_pages`."""
    k, v = k_cache.view(torch.int32), v_cache.view(torch.int32)
    layers, pages, words = k.shape[0], k.shape[1], k[0, 0].numel()
    config = choose(CONFIGS)
    grid = (len(pairs) * layers, triton.cdiv(words, config["BLOCK"]))
    copy_pages_kernel[grid](k, v, pairs, layers, pages, WORDS=words, **config)
