"""The scheduler's process: the core with its rings, its metrics, and what to do when a neighbour dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from stretto.roles import messages as m
from stretto.roles.actor import Context, Role
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.overlap import Overlap
from stretto.roles.scheduler.probes import PROBES
from stretto.roles.trace import Probe, span

QUIET_SECONDS = 0.2
"""Idle time before the invariants are verified, so that the next request of a client need not wait for it."""

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[m.ToScheduler] = msgspec.msgpack.Decoder(m.ToScheduler)
_results: msgspec.msgpack.Decoder[m.ToSchedulerFromExecutor] = msgspec.msgpack.Decoder(
    m.ToSchedulerFromExecutor
)
_stop_hits: msgspec.msgpack.Decoder[m.StopHit] = msgspec.msgpack.Decoder(m.StopHit)


class Scheduler(Role):
    """Turns requests into plans for the executor, and its results into tokens for the detokenizers."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._core: Core | None = None
        """Made when the first executor says how many pages it has."""
        self._device_ready = False
        self._early: list[m.ToScheduler] = []
        """What came before the core was there."""
        self._overlap = Overlap(ctx.meter)
        self._unverified = False
        self._quiet: asyncio.TimerHandle | None = None
        """Runs while it is quiet and the invariants are not verified."""
        self._quiet_over = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: float | None = None
        """The deadline that the alarm is set for."""

    async def open(self) -> dict[str, Any]:
        """Find the rings."""
        ctx, self._loop = self.ctx, asyncio.get_running_loop()
        detokenizers = [f"detokenizer.{index}" for index in range(ctx.config.detokenizers)]
        self._tokenizers = [ctx.receiver(f"tokenizer.{index}") for index in range(ctx.config.tokenizers)]
        self._stops = [ctx.receiver(name) for name in detokenizers]
        self._readers = [ctx.sender(name) for name in detokenizers]
        self._results, self._plans = ctx.receiver("executor.0"), ctx.sender("executor.0")
        return {"max_seqs": ctx.config.max_seqs, "overlap": ctx.config.overlap}

    def turn(self) -> None:
        """Results first, for they free resources; then all that came in; then plan, send, count."""
        for message in self._drain_results():
            self._on_executor(message)
        for request in self._drain_requests():
            self._on_request(request)
        core = self._core
        if core is None:
            return
        core.stop(uid for hit in self._drain_stop_hits() for uid in hit.uids)
        if core.next_deadline is not None:
            core.expire(time.monotonic())
        self._plan(core)
        self._deliver(core)
        self._measure(core)
        self._set_alarm(core.next_deadline)
        if self._quiet_over:
            self._verify(core)
        self._watch_idle(core)

    def probes(self) -> tuple[Probe, ...]:
        """See `roles.actor`."""
        return (
            span(Scheduler, "turn", "turn"),
            span(Scheduler, "_send", "encode", ("step",), lambda _, role, plan: (plan.step,)),
            span(Scheduler, "_deliver", "deliver"),
            span(Scheduler, "_verify", "verify"),
            *PROBES,
        )

    def rewired(self, edge: str) -> None:
        """A neighbour died; what it held for running requests is replayed or given up."""
        writer, reader = edge.split(">")
        role, index = (reader if writer == self.ctx.name else writer).split(".")
        if role == "executor":
            self._device_ready = False  # until its successor says hello
        elif role == "detokenizer" and self._core is not None:
            self._core.lose(int(index))

    # Messages in.

    def _drain_results(self) -> Iterator[m.ToSchedulerFromExecutor]:
        return map(_results.decode, self._results.drain())

    def _drain_requests(self) -> Iterator[m.ToScheduler]:
        for ring in self._tokenizers:
            yield from map(_requests.decode, ring.drain())

    def _drain_stop_hits(self) -> Iterator[m.StopHit]:
        for ring in self._stops:
            yield from map(_stop_hits.decode, ring.drain())

    def _on_executor(self, message: m.ToSchedulerFromExecutor) -> None:
        match message:
            case m.Hello(pages):
                self._on_hello(pages)
            case m.Result() if self._core is not None and self._device_ready:
                self._overlap.reported(message.clock)
                self._core.advance(message)
            case _:
                raise RuntimeError(f"the executor sent a result before its hello: {message}")

    def _on_hello(self, pages: int) -> None:
        self._device_ready = True
        self._overlap.restart()
        self.ctx.meter.set("kv_pages", pages)
        if self._core is not None:
            self._core.restart(pages)
            return
        self._core = Core(self._limits(pages))
        early, self._early = self._early, []
        for message in early:
            self._on_request(message)

    def _on_request(self, message: m.ToScheduler) -> None:
        if self._core is None:
            self._early.append(message)
            return
        match message:
            case m.Request():
                self._core.submit([message])
            case m.Abort(uid):
                self._core.abort([uid])

    def _limits(self, pages: int) -> Limits:
        config = self.ctx.config
        return Limits(
            pages=pages,
            page_size=config.page_size,
            max_seqs=config.max_seqs,
            max_batched_tokens=config.max_batched_tokens,
            max_model_len=config.max_model_len,
            overlap=config.overlap,
            prefix_cache=config.prefix_cache,
            detokenizers=config.detokenizers,
        )

    # Messages out.

    def _plan(self, core: Core) -> None:
        while self._device_ready and not self._plans.blocked and (plan := core.next_plan()) is not None:
            self._overlap.planned(plan)
            self._send(plan)

    def _send(self, plan: m.Plan) -> None:
        self._plans.send(_encoder.encode(plan))

    def _deliver(self, core: Core) -> None:
        for index, tokens in core.take():
            self._readers[index].send(_encoder.encode(tokens))

    def _measure(self, core: Core) -> None:
        meter, (free, cached, owned) = self.ctx.meter, core.pages
        for name, amount in core.take_counts().by_metric():
            meter.add(name, amount)
        meter.set("requests_running", core.running)
        meter.set("requests_waiting", core.waiting)
        meter.set("kv_pages_free", free)
        meter.set("kv_pages_cached", cached)
        meter.set("kv_pages_owned", owned)

    # Deadlines.

    def _set_alarm(self, at: float | None) -> None:
        """Wake up at this time, `time.monotonic()` seconds, and at no other."""
        if at == self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = None if at is None else self._loop.call_later(at - time.monotonic(), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = self._alarm_at = None
        self.ctx.wake()

    # Idleness.

    def _watch_idle(self, core: Core) -> None:
        """Verify the invariants once after each busy time, when it has been quiet for a moment."""
        if core.busy:
            self._unverified = True
            if self._quiet is not None:
                self._quiet.cancel()
                self._quiet = None
        elif self._unverified and self._quiet is None:
            self._quiet = self._loop.call_later(QUIET_SECONDS, self._on_quiet)

    def _on_quiet(self) -> None:
        self._quiet_over = True
        self.ctx.wake()  # so that a broken invariant ends the role, not just this callback

    def _verify(self, core: Core) -> None:
        self._quiet, self._quiet_over = None, False
        if not core.busy:
            self._unverified = False
            core.check()
