"""Paged attention on the GPU: sequences with one row by one kernel, prompt chunks by another.

Both are launched over bounds that the host knows, and look up what there is to do: nothing is read back. A
caller who knows that all rows are decodes says so, and spares a launch.

How decoding gets the memory's bandwidth (reckoned for an H200: 132 multiprocessors, 4.8 TB/s, some 0.8 us
from a load to its data, so that 29 KB must be on their way to each multiprocessor at all times):

* a program of 4 warps has two tiles on their way by asynchronous copies of 16 bytes, each 16 KB of keys and
  16 KB of values. Page numbers come as far ahead of the keys that they lead to, which is why it takes 5
  stages: with 4, the compiler keeps one tile. That is 72 KB of shared memory and under 170 registers, so
  three programs fit a multiprocessor, and one starts while the others stream.
* all query heads of a KV head share what is loaded, in one product of 16 rows on the tensor cores: padding to
  16 rows costs nothing that memory would not wait for.
* a split of 512 positions is 256 KB of keys and values for a head of 128 in 16 bits: 7 us of one
  multiprocessor's share, against 1 us to start. 64 sequences of 4,096 tokens and 8 KV heads are 4,096
  programs, 10 rounds of 396. Partial results are 0.8 % of the bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from stretto.kernels.generation import capability, choose
from stretto.kernels.paged_attention.triton_decode import decode_kernel, merge_kernel
from stretto.kernels.paged_attention.triton_extend import extend_kernel

SPLIT = 512
"""Positions of a split. Part of what a decode computes, so the same for every GPU and batch."""

PROGRAMS = 4096
"""Decode programs a launch has, at the most, if that many share the splits of long sequences."""

SCRATCH_LIMIT = 1 << 25
"""Floats of scratch (128 MiB) beyond which sequences are decoded in several launches."""

MERGED = 8
"""Splits that `merge_kernel` adds at once: all of them up to 4,096 positions."""

LOG2_E = 1.4426950408889634


class Tiles(NamedTuple):
    """The work of a program."""

    rows: int
    """Query vectors: rows times heads of a group."""
    elements: int
    """Of a tile of keys, and of one of values."""
    warps: int
    stages: int

    def options(self, dim_block: int) -> dict[str, int]:
        """Keyword arguments of a launch."""
        tile = max(16, self.elements // dim_block)
        return {"TILE": tile, "num_warps": self.warps, "num_stages": self.stages}


DECODE = {
    80: {
        1: Tiles(16, 8 << 10, warps=4, stages=5),
        2: Tiles(16, 8 << 10, warps=4, stages=5),
        4: Tiles(16, 4 << 10, warps=4, stages=5),
    }
}
"""By bytes of an element of the cache; see the top of this file."""

EXTEND = {
    80: {
        1: Tiles(64, 8 << 10, warps=4, stages=5),
        2: Tiles(64, 8 << 10, warps=4, stages=5),
        4: Tiles(16, 2 << 10, warps=4, stages=1),
    },
    90: {
        1: Tiles(128, 8 << 10, warps=8, stages=5),
        2: Tiles(128, 8 << 10, warps=8, stages=5),
        4: Tiles(16, 2 << 10, warps=4, stages=1),
    },
}
"""128 query vectors feed the asynchronous tensor cores of compute capability 9.0 from two warp groups. No
tensor core keeps float32 whole, and the operands of plain products fill the registers sooner.
"""


def scratch_size(sequences: int, q_heads: int, head_dim: int, max_splits: int) -> int:
    """Floats for the partial results of decoding so many sequences at once, 0 if there are none to merge."""
    return sequences * q_heads * max_splits * (head_dim + 2) if max_splits > 1 else 0


def count_splits(positions: int, window: int) -> int:
    """Splits that one row may have in a table of so many positions."""
    splits = -(-positions // SPLIT)
    return min(splits, -(-window // SPLIT) + 1) if window else splits


class _Call(NamedTuple):
    """The arguments of `paged_attention`, and what follows from their shapes."""

    out: torch.Tensor
    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_tables: torch.Tensor
    query_starts: torch.Tensor
    kv_lengths: torch.Tensor
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None
    factor: float
    window: int

    @property
    def shape(self) -> dict[str, int]:
        """Constants of both kinds of kernel."""
        head_dim = self.q.shape[2]
        return {
            "GROUP": self.q.shape[1] // self.k_cache.shape[2],
            "HEAD_DIM": head_dim,
            "DIM_BLOCK": max(16, triton.next_power_of_2(head_dim)),
            "WINDOW": self.window,
        }

    @property
    def strides(self) -> tuple[int, ...]:
        """Of a token of out and q, of a sequence of block_tables, of a page and a token of the caches."""
        tensors = (self.out, self.q, self.block_tables)
        return *(x.stride(0) for x in tensors), self.k_cache.stride(0), self.k_cache.stride(1)


def _extend(call: _Call) -> None:
    shape, sequences = call.shape, len(call.kv_lengths)
    tiles = choose(EXTEND)[call.k_cache.itemsize]
    rows = max(tiles.rows, triton.next_power_of_2(shape["GROUP"]))
    blocks = len(call.q) // (rows // shape["GROUP"]) + sequences
    extend_kernel[(blocks, call.k_cache.shape[2])](
        *call[:-1],
        sequences,
        *call.strides,
        **shape,
        PAGE_SIZE=call.k_cache.shape[1],
        ROW_BLOCK=rows,
        **tiles.options(shape["DIM_BLOCK"]),
    )


def _decode(call: _Call, scratch: torch.Tensor | None) -> None:
    sequences, kv_heads, page_size = len(call.kv_lengths), call.k_cache.shape[2], call.k_cache.shape[1]
    _, q_heads, head_dim = call.q.shape
    splits = count_splits(call.block_tables.shape[1] * page_size, call.window)
    size = scratch_size(1, q_heads, head_dim, splits)
    together = min(sequences, max(1, SCRATCH_LIMIT // size)) if size else sequences
    if scratch is None:
        scratch = torch.empty(together * size, dtype=torch.float32, device=call.q.device)
    workers = max(1, min(splits, PROGRAMS // (together * kv_heads)))
    for first in range(0, sequences, together):
        count = min(together, sequences - first)
        _decode_some(call, scratch, first, count, splits, workers)


def _decode_some(
    call: _Call, scratch: torch.Tensor, first: int, count: int, splits: int, workers: int
) -> None:
    shape = call.shape
    kv_heads, q_heads = call.k_cache.shape[2], call.q.shape[1]
    tiles = choose(DECODE)[call.k_cache.itemsize]
    place = (first, splits, count * q_heads * splits * shape["HEAD_DIM"])
    decode_kernel[(kv_heads, count, workers)](
        call.out,
        scratch,
        *call[1:-1],
        *place,
        *call.strides,
        **shape,
        GROUP_BLOCK=max(tiles.rows, triton.next_power_of_2(shape["GROUP"])),
        PAGE_SIZE=call.k_cache.shape[1],
        SPLIT=SPLIT,
        **tiles.options(shape["DIM_BLOCK"]),
    )
    if splits > 1:
        merge_kernel[(q_heads, count)](
            call.out,
            scratch,
            call.query_starts,
            call.kv_lengths,
            call.v_scale,
            *place,
            call.out.stride(0),
            **shape,
            SPLIT=SPLIT,
            SPLITS=MERGED,
            num_warps=2,
            num_stages=2,
        )


def paged_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    kv_lengths: torch.Tensor,
    scale: float,
    *,
    window: int = 0,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    max_rows: int | None = None,
    scratch: torch.Tensor | None = None,
) -> None:
    """See `stretto.kernels.paged_attention.paged_attention`.

    Raises ValueError for an fp8 cache on a GPU that has no fp8.
    """
    if k_cache.dtype.itemsize == 1 and capability() < 89:
        raise ValueError(
            "an fp8 KV cache needs a GPU of compute capability 8.9 or newer; choose a 16-bit type for it"
        )
    call = _Call(
        out,
        q,
        k_cache,
        v_cache,
        block_tables,
        query_starts,
        kv_lengths,
        k_scale,
        v_scale,
        scale * LOG2_E,
        window,
    )
    if max_rows is None or max_rows > 1:
        _extend(call)
    if len(q) and (max_rows is None or max_rows == 1 or len(kv_lengths) > 1):
        _decode(call, scratch)
