"""Paged attention on the GPU: sequences with one row by one kernel, prompt chunks by another.

Both are launched over bounds that the host knows, and look up what there is to do: nothing is read back. A
caller who knows how many chunks there are says so, and spares programs that find nothing to do.

A row's bits depend on its query, its keys and values and its position, never on the batch, the pages or the
chunk; but a chunk of one row goes the way of decodes, which adds up in another order than longer chunks.
`triton_plan.py` says how the work is shared out, and why so.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from stretto.kernels.generation import capability, choose
from stretto.kernels.paged_attention import triton_plan as plan
from stretto.kernels.paged_attention.triton_decode import decode_kernel, merge_kernel
from stretto.kernels.paged_attention.triton_extend import extend_kernel, join_kernel
from stretto.kernels.paged_attention.triton_plan import scratch_size

__all__ = ["paged_attention", "scratch_size"]

LOG2_E = 1.4426950408889634


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
    def positions(self) -> int:
        """Of a sequence, as many as the block tables have room for."""
        return self.block_tables.shape[1] * self.k_cache.shape[1]

    @property
    def strides(self) -> tuple[int, ...]:
        """Of a token of out and q, of a sequence of block_tables, of a page and a token of the caches."""
        tensors = (self.out, self.q, self.block_tables)
        return *(x.stride(0) for x in tensors), self.k_cache.stride(0), self.k_cache.stride(1)


def _extend(call: _Call, chunks: int, chunk_rows: int) -> None:
    """For so many sequences of more than one row, at the most, and so many rows of theirs."""
    shape, sequences, kv_heads = call.shape, len(call.kv_lengths), call.k_cache.shape[2]
    tiles = choose(plan.EXTEND)[call.k_cache.itemsize]
    vectors = max(tiles.rows * 128 // max(128, shape["DIM_BLOCK"]), triton.next_power_of_2(shape["GROUP"]))
    rows = vectors // shape["GROUP"]
    blocks = chunk_rows // rows + chunks
    seen = call.window + rows - 1 if call.window else 0
    splits = plan.count_splits(call.positions, seen, plan.CHUNK_SPLIT)
    floats = vectors * (shape["HEAD_DIM"] + 2)
    units = plan.chunk_units(blocks, kv_heads, floats, splits)
    scratch = torch.empty(units * kv_heads * floats, dtype=torch.float32, device=call.q.device)
    shape |= {
        "ROW_BLOCK": vectors,
        "SPLIT": plan.CHUNK_SPLIT,
        "MOST": plan.count_splits(1 << 30, seen, plan.CHUNK_SPLIT),
        "PROGRAMS": plan.CHUNK_PROGRAMS // kv_heads,
    }
    extend_kernel[(max(blocks, shape["PROGRAMS"]) if units else blocks, kv_heads)](
        call.out,
        scratch,
        *call[1:-1],
        sequences,
        units,
        *call.strides,
        **shape,
        PAGE_SIZE=call.k_cache.shape[1],
        **tiles.options(shape["DIM_BLOCK"]),
    )
    if units:
        shared = min(blocks, shape["PROGRAMS"] // 2)
        join_kernel[(shared, kv_heads, triton.cdiv(vectors, plan.JOINED))](
            call.out,
            scratch,
            call.query_starts,
            call.kv_lengths,
            call.v_scale,
            sequences,
            units,
            call.out.stride(0),
            **shape,
            LANES=plan.JOINED,
            TOGETHER=plan.MERGED,
            num_warps=4,
        )


def _decode(call: _Call, scratch: torch.Tensor | None) -> None:
    sequences, (_, q_heads, head_dim) = len(call.kv_lengths), call.q.shape
    kv_heads, positions = call.k_cache.shape[2], call.positions
    if scratch is None:
        size = scratch_size(sequences, q_heads, head_dim, positions, call.window)
        scratch = torch.empty(size, dtype=torch.float32, device=call.q.device)
    splits = plan.count_splits(positions, call.window)
    together = plan.at_once(sequences, q_heads, head_dim, splits)
    workers = max(1, min(splits, plan.PROGRAMS // (together * kv_heads)))
    for first in range(0, sequences, together):
        count = min(together, sequences - first)
        _decode_some(call, scratch, first, count, splits, workers)


def _decode_some(
    call: _Call, scratch: torch.Tensor, first: int, count: int, splits: int, workers: int
) -> None:
    shape = call.shape
    kv_heads, q_heads = call.k_cache.shape[2], call.q.shape[1]
    tiles = choose(plan.DECODE)[call.k_cache.itemsize]
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
        SPLIT=plan.SPLIT,
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
            SPLIT=plan.SPLIT,
            SPLITS=plan.MERGED,
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
    chunks: tuple[int, int] | None = None,
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
    if chunks is None:
        chunks = len(kv_lengths), len(q)
    if chunks[0]:
        _extend(call, *chunks)
    _decode(call, scratch)
