"""Applies plans: one launch per step, two steps in flight, results in the order of the plans.

`launch` does the host's part of a step and hands the rest to the device's stream, so it returns while the
step ahead may still be computing. A decoding slot's input token is read on the device, where the step ahead
leaves it; no result has to come back first.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from stretto.kernels.copy_pages import copy_pages
from stretto.kernels.sample import sample
from stretto.roles import messages as m
from stretto.roles.executor.batch import Batch, Rows, make_batch
from stretto.roles.executor.device import Device, Event, Output
from stretto.roles.executor.kv import KVCache
from stretto.roles.executor.models.interface import Context, Logits, Model
from stretto.roles.executor.slots import SAMPLING, DeviceSlots, HostSlots

IN_FLIGHT = 2
"""Steps launched and not collected: the one that computes and the one that waits behind it. A step's output
buffer is free again once the step two before it has been collected."""


@dataclass(frozen=True)
class Step:
    """A launched plan."""

    number: int
    cold: bool
    samples: int
    queued: float
    started: Event
    ended: Event
    landed: Event
    """The tokens have reached the host."""
    output: Output


class Runner:
    """Owns the slots, the pool and the stream. All methods are for the role's thread.

    `wake` is called, on some other thread, when a step has landed.
    """

    def __init__(
        self,
        device: Device,
        model: Model,
        cache: KVCache,
        slots: int,
        pages_per_slot: int,
        wake: Callable[[], None],
    ) -> None:
        self._device, self._model, self._cache, self._wake = device, model, cache, wake
        self._slots, self._pages_per_slot = slots, pages_per_slot
        self._outputs = deque(device.output(slots, torch.int32) for _ in range(IN_FLIGHT))
        self._state = DeviceSlots(slots, pages_per_slot, device.torch_device)
        self._stream = device.stream()
        self._steps: deque[Step] = deque()
        self.reset()

    @property
    def in_flight(self) -> int:
        """Steps launched and not collected."""
        return len(self._steps)

    @property
    def ready(self) -> bool:
        """Whether `launch` may be called."""
        return len(self._steps) < IN_FLIGHT

    def reset(self) -> None:
        """Forget all slots; only while nothing is in flight."""
        if self._steps:
            raise RuntimeError(f"reset with {len(self._steps)} steps in flight")
        self._mirror = HostSlots(self._slots, self._pages_per_slot, page_size=self._cache.keys.shape[2])
        self._last_ended: float | None = None

    def launch(self, plan: m.Plan) -> None:
        """Queue a plan on the device. Raises RuntimeError when it contradicts what came before."""
        if not self.ready:
            raise RuntimeError(f"plan {plan.step} with {len(self._steps)} steps in flight")
        batch = make_batch(plan, self._mirror)
        step = self._step(plan, batch.sizes.samples)
        moved = batch.move(partial(self._device.upload, self._stream))
        self._stream.record(step.started)
        self._stream.submit(partial(self._execute, moved, step.output.tensor[: step.samples]))
        self._stream.record(step.ended)
        step.output.fetch(self._stream, step.landed)
        self._device.on_done(step.landed, self._wake)
        self._steps.append(step)

    def collect(self) -> list[m.Result]:
        """The results of steps that have landed since the last call. Raises what the device's work raised."""
        self._device.check()
        results = []
        while self._steps and self._steps[0].landed.done:
            results.append(self._result(self._steps.popleft()))
        return results

    def close(self) -> None:
        """Finish what is in flight and end the device's threads."""
        self._device.close()

    def _step(self, plan: m.Plan, samples: int) -> Step:
        self._outputs.rotate()
        started, ended, landed = (self._device.event() for _ in range(3))
        return Step(
            number=plan.step,
            cold=plan.cold,
            samples=samples,
            queued=time.monotonic(),
            started=started,
            ended=ended,
            landed=landed,
            output=self._outputs[0],
        )

    def _result(self, step: Step) -> m.Result:
        started, ended = step.started.time, step.ended.time
        waited = 0.0 if step.cold or self._last_ended is None else max(0.0, started - self._last_ended)
        self._last_ended = ended
        clock = m.Clock(queued=step.queued, started=started, ended=ended, idle=waited)
        return m.Result(step=step.number, tokens=step.output.host[: step.samples].tobytes(), clock=clock)

    # What follows runs on the stream.

    def _execute(self, batch: Batch[torch.Tensor], tokens: torch.Tensor) -> None:
        self._update_slots(batch)
        if len(batch.updates.copies):
            copy_pages(self._cache.keys, self._cache.values, batch.updates.copies)
        if batch.sizes.rows:
            logits = self._forward(batch)
            if batch.sizes.samples:
                self._sample(logits(batch.rows.sampled_rows), batch.rows, tokens)

    def _update_slots(self, batch: Batch[torch.Tensor]) -> None:
        state, updates, sizes = self._state, batch.updates, batch.sizes
        if len(updates.slots):
            for name in SAMPLING:
                getattr(state, name)[updates.slots] = getattr(updates, name)
        if len(updates.entries):
            slots, index, pages = updates.entries.unbind(1)
            state.table[slots, index] = pages.int()
        if sizes.decodes:
            batch.rows.ids[sizes.chunk_rows :] = state.last_token[batch.rows.slots[-sizes.decodes :]]

    def _forward(self, batch: Batch[torch.Tensor]) -> Logits:
        rows = batch.rows
        context = Context(
            positions=rows.positions,
            cells=rows.cells,
            block_tables=self._state.table[:, : batch.sizes.width].index_select(0, rows.slots),
            query_starts=rows.query_starts,
            kv_lengths=rows.kv_lengths,
        )
        return self._model(rows.ids, context, self._cache)

    def _sample(self, logits: torch.Tensor, rows: Rows[torch.Tensor], tokens: torch.Tensor) -> None:
        """Write tokens for the host, and for the next step: there -1, a failed row, becomes a valid id."""
        state, slots = self._state, rows.sampled_slots
        sample(
            logits,
            state.temperature[slots],
            state.top_k[slots],
            state.top_p[slots],
            state.min_p[slots],
            state.seed[slots],
            rows.sampled_positions,
            out=tokens,
        )
        state.last_token[slots] = tokens.clamp(min=0)
