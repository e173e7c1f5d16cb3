"""Paged attention by FlashInfer (Ye et al., 2025, arXiv:2501.01005), where that package is installed.

Its kernels are told beforehand which sequences they will meet: `plan` shares out a step's work on the host,
which must know all lengths, and `run` does it for each layer. So a step begins with `begin`, which says what
the host knows of it; the first layer of each group then plans, and the others run on that plan. Chunks and
decodes go through one kernel.

A plan's shares depend on all sequences of the step, and with them the order in which a row's keys are added
up: its bits depend on the batch.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import torch

WORKSPACE_BYTES = 128 << 20
"""For partial sums, as FlashInfer's documentation recommends. Wrappers share it, since they run in order."""
TURNS = 2
"""A plan is written to its wrapper's pinned buffer, which a copy on the stream reads. The host is at most one
step ahead: when a wrapper's turn comes again, the step that had it before has been collected."""


class FlashInferAttention:
    """Stands for `stretto.kernels.paged_attention.paged_attention`; for one model, on one stream.

    library: the module `flashinfer`. place: where all tensors are.
    """

    def __init__(self, library: ModuleType, place: torch.device) -> None:
        self._library, self._place = library, place
        self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=place)
        self._wrappers: list[list[Any]] = [[] for _ in range(TURNS)]
        self._turn = 0
        self._planned: dict[int, Any] = {}
        """By the address of a group's block tables: what was planned for it in this step."""
        self._units: dict[int, float] = {}
        """By the address of a scale: its value."""

    def begin(self, query_starts: np.ndarray, kv_lengths: np.ndarray) -> None:
        """The calls that follow are those of a step with these sequences: int32 [B + 1] and [B], on the host,
        equal to what the calls have on the device. Every sequence has a row, and a key.
        """
        self._starts, self._lengths = torch.from_numpy(query_starts), torch.from_numpy(kv_lengths)
        self._turn = (self._turn + 1) % TURNS
        self._planned.clear()

    def __call__(
        self,
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
    ) -> None:
        """See `stretto.kernels.paged_attention.paged_attention`. out, q: float16 or bfloat16. A scale is the
        same for all heads. The model's tables of a step stay where they are until its last layer has run.
        """
        wrapper = self._planned.get(block_tables.data_ptr())
        if wrapper is None:
            wrapper = self._plan(q, k_cache, block_tables, scale, window)
            self._planned[block_tables.data_ptr()] = wrapper
        wrapper.run(q, (k_cache, v_cache), out=out, k_scale=self._unit(k_scale), v_scale=self._unit(v_scale))

    def _plan(
        self, q: torch.Tensor, k_cache: torch.Tensor, block_tables: torch.Tensor, scale: float, window: int
    ) -> Any:
        page_size, kv_heads = k_cache.shape[1:3]
        counts = (self._lengths + page_size - 1) // page_size
        ends = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
        wrapper = self._wrapper(len(self._planned))
        wrapper.plan(
            self._pinned(self._starts),
            self._pinned(ends),
            _indices(block_tables, self._to_device(ends), int(ends[-1])),
            self._pinned((self._lengths - 1) % page_size + 1),
            q.shape[1],
            kv_heads,
            q.shape[2],
            page_size,
            causal=True,
            sm_scale=scale,
            window_left=window - 1,
            q_data_type=q.dtype,
            kv_data_type=k_cache.dtype,
        )
        return wrapper

    def _wrapper(self, index: int) -> Any:
        """This turn's wrapper for the group that comes as number `index`."""
        mine = self._wrappers[self._turn]
        if index == len(mine):
            mine.append(self._library.BatchPrefillWithPagedKVCacheWrapper(self._workspace, "NHD"))
        return mine[index]

    def _unit(self, scale: torch.Tensor | None) -> float | None:
        """A scale as FlashInfer takes it; read from the device when a layer runs for the first time."""
        if scale is None:
            return None
        if scale.data_ptr() not in self._units:
            self._units[scale.data_ptr()] = float(scale[0])
        return self._units[scale.data_ptr()]

    def _pinned(self, numbers: torch.Tensor) -> torch.Tensor:
        """Memory that a copy to a GPU can read while the host goes on."""
        return numbers.pin_memory() if self._place.type == "cuda" else numbers

    def _to_device(self, numbers: torch.Tensor) -> torch.Tensor:
        return self._pinned(numbers).to(self._place, non_blocking=True)


def _indices(block_tables: torch.Tensor, ends: torch.Tensor, total: int) -> torch.Tensor:
    """All pages of the tables, sequence after sequence, int32 [total].

    block_tables: int32 [B, width]; a page that no row of a window sees may be -1, and is page 0 here: it is
    looked up and masked. ends: int32 [B + 1], where each sequence's pages begin and end.
    """
    counts = ends.diff()
    rows = torch.arange(len(counts), device=ends.device).repeat_interleave(counts, output_size=total)
    columns = torch.arange(total, device=ends.device) - ends[rows]
    return block_tables[rows, columns].clamp(min=0)
