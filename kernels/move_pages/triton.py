"""Page moves on the GPU: a program for a block of one page in one layer, keys and values."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stretto.kernels.generation import choose

CONFIGS = {80: {"BLOCK": 2048, "num_warps": 4}}
"""16 words of 4 bytes a thread, in accesses of 16 bytes."""


@triton.jit
def _move(source: tl.tensor, destination: tl.tensor, keep: tl.tensor) -> None:
    tl.store(destination, tl.load(source, mask=keep), mask=keep)


@triton.jit
def move_pages_kernel(
    k: tl.tensor,
    v: tl.tensor,
    pages: tl.tensor,
    buffer: tl.tensor,
    layers: tl.tensor,
    pool: tl.tensor,
    OUT: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """pool: pages of the caches. OUT: from the caches to the buffer."""
    unit = tl.program_id(0).to(tl.int64)
    index, layer = unit // layers, unit % layers
    words = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    page, keep = tl.load(pages + index), words < WORDS
    in_pool, in_buffer = (layer * pool + page) * WORDS + words, 2 * unit * WORDS + words
    if page >= 0:
        if OUT:
            _move(k + in_pool, buffer + in_buffer, keep)
            _move(v + in_pool, buffer + in_buffer + WORDS, keep)
        else:
            _move(buffer + in_buffer, k + in_pool, keep)
            _move(buffer + in_buffer + WORDS, v + in_pool, keep)


def _launch(
    k_cache: torch.Tensor, v_cache: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor, out: bool
) -> None:
    k, v, words = (tensor.view(torch.int32) for tensor in (k_cache, v_cache, buffer))
    layers, pool, size = k.shape[0], k.shape[1], k[0, 0].numel()
    config = choose(CONFIGS)
    grid = (len(pages) * layers, triton.cdiv(size, config["BLOCK"]))
    move_pages_kernel[grid](k, v, pages, words, layers, pool, OUT=out, WORDS=size, **config)


def gather_pages(
    k_cache: torch.Tensor, v_cache: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor
) -> None:
    """See `stretto.kernels.move_pages.gather_pages`."""
    _launch(k_cache, v_cache, pages, buffer, out=True)


def scatter_pages(
    k_cache: torch.Tensor, v_cache: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor
) -> None:
    """See `stretto.kernels.move_pages.scatter_pages`."""
    _launch(k_cache, v_cache, pages, buffer, out=False)
