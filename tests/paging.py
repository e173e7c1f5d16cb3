"""Sequences laid out in pages, for the tests of every implementation."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch


class Cache(NamedTuple):
    """The keys and values of some sequences, in pages of some size, in no order; all other cells are NaN."""

    keys: torch.Tensor
    values: torch.Tensor
    block_tables: torch.Tensor


def paged(contents: Sequence[torch.Tensor], page_size: int) -> Cache:
    """contents: per sequence [2, length, Hk, D]."""
    counts = [-(-x.shape[1] // page_size) for x in contents]
    order = torch.randperm(sum(counts) + 3)
    caches = torch.full((2, len(order), page_size, *contents[0].shape[2:]), float("nan"))
    tables = torch.full((len(contents), max(counts) + 2), 2**30, dtype=torch.int32)
    for index, (x, count) in enumerate(zip(contents, counts, strict=True)):
        pages, order = order[:count], order[count:]
        tables[index, :count] = pages
        cells = (pages[:, None] * page_size + torch.arange(page_size)).flatten()[: x.shape[1]]
        caches.flatten(1, 2)[:, cells] = x
    return Cache(*caches, tables)


def attend(
    function: Any, q: torch.Tensor, cache: Cache, rows: Sequence[int], lengths: Sequence[int], **options: Any
) -> torch.Tensor:
    """Call an implementation on `rows` last rows of each sequence; what it leaves out is NaN."""
    starts = torch.tensor([0, *rows]).cumsum(0).int()
    out = torch.full_like(q, float("nan"))
    function(out, q, *cache, starts, torch.tensor(lengths, dtype=torch.int32), q.shape[2] ** -0.5, **options)
    return out
