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
from typing import TYPE_CHECKING, Any

import torch

from stretto.kernels.copy_pages import copy_pages
from stretto.roles import messages as m
from stretto.roles.executor.batch import Batch, Sizes, Updates, make_batch
from stretto.roles.executor.control_state import ControlState
from stretto.roles.executor.device import Device, Event, Stream
from stretto.roles.executor.kv import KVCache
from stretto.roles.executor.landing import Landing
from stretto.roles.executor.models.interface import Context, Logits, Model
from stretto.roles.executor.sampler import Sampler
from stretto.roles.executor.scorer import Scorer
from stretto.roles.executor.scoring import Scores
from stretto.roles.executor.slots import SAMPLING, DeviceSlots, HostSlots

if TYPE_CHECKING:
    from stretto.roles.executor.transfers import Transfers

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
    """The results have reached the host."""
    landing: Landing
    scores: Scores | None


class Runner:
    """Owns the slots, the pool and the stream. All methods are for the role's thread.

    `wake` is called, on some other thread, when a step has landed. stream: one that nobody else uses, for the
    steps; None: a new one.
    """

    spare_slots = 0
    """Rows of the device's slot state that no sequence has."""

    def __init__(
        self,
        device: Device,
        model: Model,
        cache: KVCache,
        slots: int,
        pages_per_slot: int,
        wake: Callable[[], None],
        transfers: Transfers | None = None,
        stream: Stream | None = None,
    ) -> None:
        self._device, self._model, self._cache, self._wake = device, model, cache, wake
        self._transfers = transfers
        self._slots, self._pages_per_slot = slots, pages_per_slot
        self._landings = deque(Landing(device, slots) for _ in range(IN_FLIGHT))
        self._layout, rows = (len(model.kv_windows), model.state_pages), slots + self.spare_slots
        self._state = DeviceSlots(rows, pages_per_slot, device.torch_device, *self._layout)
        context = pages_per_slot * cache.keys.shape[2]
        self._controls = ControlState(slots, model.vocab_size, context, device.torch_device)
        self._sampler = Sampler(self._state, self._controls)
        self._stream = device.stream() if stream is None else stream
        self._stream.catch_up()
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
        page_size = self._cache.keys.shape[2]
        self._mirror = HostSlots(self._slots, self._pages_per_slot, page_size, *self._layout)
        self._last_ended: float | None = None

    def launch(self, plan: m.Plan) -> None:
        """Queue a plan on the device. Raises RuntimeError when it contradicts what came before."""
        if not self.ready:
            raise RuntimeError(f"plan {plan.step} with {len(self._steps)} steps in flight")
        batch = self._make_batch(plan)
        step = self._step(plan, batch.sizes, batch.scores)
        moved = batch.move(partial(self._device.upload, self._stream))
        self._wait_for(plan.after)
        self._stream.record(step.started)
        self._stream.submit(partial(self._execute, moved, step.landing))
        self._stream.record(step.ended)
        step.landing.fetch(self._stream, step.landed, detailed=step.scores is not None)
        self._device.on_done(step.landed, self._wake)
        self._steps.append(step)

    def _make_batch(self, plan: m.Plan) -> Any:
        """The host's part of a step: something that `_execute` understands, and that moves like a `Batch`."""
        return make_batch(plan, self._mirror, self._model.vocab_size)

    def _wait_for(self, move: int) -> None:
        """Let the step wait on the device for a move, and with it for all moves before."""
        if move and self._transfers is not None and (event := self._transfers.event(move)) is not None:
            self._stream.wait(event)

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

    def _step(self, plan: m.Plan, sizes: Sizes, scores: Scores | None) -> Step:
        self._landings.rotate()
        if scores is not None:
            self._landings[0].reserve(scores.size)
        started, ended, landed = (self._device.event() for _ in range(3))
        return Step(
            number=plan.step,
            cold=plan.cold,
            samples=sizes.samples,
            queued=time.monotonic(),
            started=started,
            ended=ended,
            landed=landed,
            landing=self._landings[0],
            scores=scores,
        )

    def _result(self, step: Step) -> m.Result:
        started, ended = step.started.time, step.ended.time
        waited = 0.0 if step.cold or self._last_ended is None else max(0.0, started - self._last_ended)
        self._last_ended = ended
        clock = m.Clock(queued=step.queued, started=started, ended=ended, idle=waited)
        tokens = step.landing.tokens.host[: step.samples].tobytes()
        if step.scores is None:
            return m.Result(step.number, tokens, clock)
        return m.Result(step.number, tokens, clock, *step.scores.messages(step.landing.details.host))

    # What follows runs on the stream.

    def _execute(self, batch: Batch[torch.Tensor], landing: Landing) -> None:
        self._update_slots(batch)
        if batch.updates is not None and len(batch.updates.copies):
            copy_pages(self._cache.keys, self._cache.values, batch.updates.copies)
        if batch.sizes.rows:
            tokens = landing.tokens.tensor[: batch.sizes.samples]
            self._sampler(self._forward(batch), batch, tokens, scorer_of(batch, landing))

    def _update_slots(self, batch: Batch[torch.Tensor]) -> None:
        sizes, rows = batch.sizes, batch.rows
        if batch.updates is not None:
            self._update(batch.updates)
        if batch.control_updates is not None:
            self._controls.admit(batch.control_updates)
        if sizes.decodes:
            decoding = rows.slots[-sizes.decodes :]
            rows.ids[sizes.chunk_rows :] = self._state.last_token.index_select(0, decoding)

    def _update(self, updates: Updates[torch.Tensor]) -> None:
        state = self._state
        if len(updates.slots):
            for name in SAMPLING:
                getattr(state, name)[updates.slots] = getattr(updates, name)
        if len(updates.entries):
            slots, index, pages = updates.entries.unbind(1)
            state.table[slots, index] = pages.int()

    def _forward(self, batch: Batch[torch.Tensor]) -> Logits:
        rows = batch.rows
        context = Context(
            positions=rows.positions,
            cells=rows.cells,
            block_tables=self._state.tables(rows.slots, batch.sizes.width),
            query_starts=rows.query_starts,
            kv_lengths=rows.kv_lengths,
            states=self._state.states(rows.slots),
            chunks=batch.sizes.chunks,
        )
        return self._model(rows.ids, context, self._cache)


def scorer_of(batch: Any, landing: Landing) -> Scorer | None:
    """What fills the landing's details, where the step has any."""
    if batch.scored is None or batch.scores is None:
        return None
    return Scorer(batch.scored, batch.scores.columns(landing.details.tensor, torch.float32))
