"""The network on the CPU as programs: its kernel calls are recorded, and run in one entry of the pool.

Steps of decodes alone differ in nothing but their inputs, so these are copied to where the calls look for
them, and a recording, from the first layer to the logits, serves every step of as many rows. Of other steps
the layers are recorded for themselves: threads that stay in the pool from one kernel to the next need not be
woken for each.

Measured, one row of SmolLM2-135M, Python's part of the layers: 1.5 ms of a step, 0.1 ms replayed; the logits,
0.3 ms less of a step when they are part of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from stretto.kernels.program import Program
from stretto.roles.executor.kv import KVCache
from stretto.roles.executor.models.interface import Context
from stretto.roles.executor.models.workspace import Workspace

MOST = 64
"""Rows up to which steps are replayed. With more, the interpreter's part of a step is small."""

Layers = Callable[[torch.Tensor, torch.Tensor, Context, KVCache, Workspace], None]
"""From x and residual, [T, hidden], which are worked on in place."""
Tail = Callable[[torch.Tensor, torch.Tensor, Workspace], torch.Tensor]
"""From these to logits, [T, vocabulary], in the workspace: two kernel calls."""


class Replay:
    """Runs layers, which are `calls` kernel calls, and a tail. One pool at a time: the one it met last."""

    def __init__(self, layers: Layers, tail: Tail, calls: int, hidden: int, max_len: int) -> None:
        self._layers, self._tail, self._calls, self._max_len = layers, tail, calls, max_len
        place = torch.device("cpu")
        self._x, self._residual = torch.empty(2, MOST, hidden)
        self._space = Workspace(place, least=MOST)
        self._programs: dict[int, tuple[Program, torch.Tensor]] = {}
        """By rows, with the logits that they leave."""
        self._pool: object = None
        self._whole: bool | None = None
        """Whether the layers are kernel calls alone, and nothing is left to torch; None before any step."""

    def takes(self, context: Context, cache: KVCache) -> bool:
        """Whether a step is one of those that are replayed: decodes alone, all of whose rows are sampled."""
        rows, width = context.block_tables.shape[-2:]
        return (
            self._whole is True and context.chunks == (0, 0) and rows <= MOST and width <= self._width(cache)
        )

    def once(
        self, x: torch.Tensor, residual: torch.Tensor, context: Context, cache: KVCache, space: Workspace
    ) -> None:
        """Run the layers on any step. Raises RuntimeError when they are no longer what they were."""
        deferred = self._whole is True
        with Program(deferred) as program:
            self._layers(x, residual, context, cache, space)
        if not deferred:
            self._whole = len(program) == self._calls
        else:
            self._check(program, self._calls)
            program()

    def __call__(self, embedded: torch.Tensor, context: Context, cache: KVCache) -> torch.Tensor:
        """embedded: [T, hidden]. Returns logits, float32 [T, vocabulary], valid until the next step.

        Raises RuntimeError when the network is no longer what it was.
        """
        self._meet(cache, context.block_tables.shape[:-2])
        rows = len(embedded)
        x, residual = self._x[:rows], self._residual[:rows]
        residual.copy_(embedded)
        fixed = self._place(context)
        if known := self._programs.get(rows):
            program, logits = known
            program()
            return logits
        with Program() as program:
            self._layers(x, residual, fixed, cache, self._space)
            logits = self._tail(x, residual, self._space)
        self._check(program, self._calls + 2)
        self._programs[rows] = program, logits
        return logits

    def _check(self, program: Program, calls: int) -> None:
        if len(program) != calls:
            raise RuntimeError(f"{len(program)} kernel calls in a network that makes {calls}")

    def _width(self, cache: KVCache) -> int:
        return -(-self._max_len // cache.keys.shape[2])

    def _meet(self, cache: KVCache, groups: torch.Size) -> None:
        """Forget recordings that were made with another pool. groups: of layers, empty where there is one."""
        pool = cache.keys.data_ptr(), cache.values.data_ptr(), cache.keys.shape
        if pool == self._pool:
            return
        self._pool = pool
        self._programs.clear()
        int32 = torch.int32
        self._fixed = Context(
            positions=torch.zeros(MOST, dtype=int32),
            cells=torch.zeros(*groups, MOST, dtype=torch.int64),
            block_tables=torch.zeros(*groups, MOST, self._width(cache), dtype=int32),
            query_starts=torch.arange(MOST + 1, dtype=int32),
            kv_lengths=torch.zeros(MOST, dtype=int32),
        )

    def _place(self, context: Context) -> Context:
        """The context, copied to where recorded calls expect it."""
        rows, width = context.block_tables.shape[-2:]
        fixed = Context(
            positions=self._fixed.positions[:rows],
            cells=self._fixed.cells[..., :rows],
            block_tables=self._fixed.block_tables[..., :rows, :],
            query_starts=self._fixed.query_starts[: rows + 1],
            kv_lengths=self._fixed.kv_lengths[:rows],
        )
        fixed.positions.copy_(context.positions)
        fixed.cells.copy_(context.cells)
        fixed.block_tables[..., :width].copy_(context.block_tables)
        fixed.kv_lengths.copy_(context.kv_lengths)
        return fixed
