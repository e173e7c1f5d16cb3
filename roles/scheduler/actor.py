"""The scheduler's process: the core with its rings, its metrics, and what to do when a neighbour dies."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from stretto.roles import messages as m
from stretto.roles.actor import Context, Role
from stretto.roles.alarm import Alarm
from stretto.roles.scheduler.below import NOTHING_BELOW, below_of
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.limits import Limits, chunk_budget
from stretto.roles.scheduler.overlap import Overlap
from stretto.roles.scheduler.probes import PROBES
from stretto.roles.scheduler.recall import requests_of
from stretto.roles.scheduler.tiers import Tiers
from stretto.roles.trace import Probe, span

QUIET_SECONDS = 0.2
"""Idle time before the invariants are verified, so that the next request of a client need not wait for it."""

LOOKS = 8
"""How often requests that stand still are looked for while they may."""

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[m.ToScheduler] = msgspec.msgpack.Decoder(m.ToScheduler)
_results: msgspec.msgpack.Decoder[m.ToSchedulerFromExecutor] = msgspec.msgpack.Decoder(
    m.ToSchedulerFromExecutor
)
_hints: msgspec.msgpack.Decoder[m.ToSchedulerFromDetokenizer] = msgspec.msgpack.Decoder(
    m.ToSchedulerFromDetokenizer
)


class Scheduler(Role):
    """Turns requests into plans for the executor, and its results into tokens for the detokenizers."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._core: Core | None = None
        """Made when the first executor says how many pages it has."""
        self._device_ready = False
        self._device_killed = False
        """The last executor died by SIGKILL."""
        self._held: dict[int, list[m.Held]] = {}
        """By detokenizer: the streams to go on with, until all have said theirs and the core is there."""
        self._awaited = set(range(ctx.config.detokenizers))
        """Detokenizers whose last `Recall` is to come; requests wait for it in their rings."""
        self._stopped: list[int] = []
        """Uids that detokenizers want stopped."""
        self._looked = 0.0
        """When stalled requests were last looked for."""
        self._overlap = Overlap(ctx.meter)
        self._unverified = False
        self._quiet: asyncio.TimerHandle | None = None
        """Runs while it is quiet and the invariants are not verified."""
        self._quiet_over = False
        self._alarm = Alarm(ctx.wake)

    async def open(self) -> dict[str, Any]:
        """Find the rings."""
        ctx, self._loop = self.ctx, asyncio.get_running_loop()
        detokenizers = [f"detokenizer.{index}" for index in range(ctx.config.detokenizers)]
        self._tokenizers = [ctx.receiver(f"tokenizer.{index}") for index in range(ctx.config.tokenizers)]
        self._hints = [ctx.receiver(name) for name in detokenizers]
        self._readers = [ctx.sender(name) for name in detokenizers]
        self._results, self._plans = ctx.receiver("executor.0"), ctx.sender("executor.0")
        return {"max_seqs": ctx.config.max_seqs, "overlap": ctx.config.overlap}

    def turn(self) -> None:
        """Results first, for they free resources; then all that came in; then plan, send, count."""
        for message in self._drain_results():
            self._on_executor(message)
        for index, hint in self._drain_hints():
            self._on_detokenizer(index, hint)
        core = self._core
        if core is None or self._awaited:
            return
        self._recall(core)
        self._take_in(core)
        self._watch_time(core)
        self._plan(core)
        self._deliver(core)
        self._measure(core)
        if self._quiet_over:
            self._verify(core)
        self._watch_idle(core)

    async def close(self) -> None:
        """Save what the file store lacks of what memory holds, as far as there is time for it."""
        core, until = self._core, self._loop.time() + self.ctx.grace
        if core is None or not (core.tiers.below.disk and self.ctx.grace):
            return
        core.hurry()
        alarm = self._loop.call_at(until, self.ctx.wake)
        while self._device_ready and core.tiers.unsaved and self._loop.time() < until:
            self._send_moves(core)
            await self.ctx.wait()
            for message in self._drain_results():
                self._on_executor(message)
        alarm.cancel()

    def probes(self) -> tuple[Probe, ...]:
        """See `roles.actor`."""
        return (
            span(Scheduler, "turn", "turn"),
            span(Scheduler, "_send", "encode", ("step",), lambda _, role, plan: (plan.step,)),
            span(Scheduler, "_deliver", "deliver"),
            span(Scheduler, "_verify", "verify"),
            *PROBES,
        )

    def rewired(self, edge: str, killed: bool = False) -> None:
        """A neighbour died; what it held is computed or told again, or comes again from the gateways."""
        writer, reader = edge.split(">")
        role, index = (reader if writer == self.ctx.name else writer).split(".")
        if role == "executor":
            self._device_ready, self._device_killed = False, killed  # until its successor says hello
        elif role == "detokenizer" and writer == self.ctx.name:
            self._lose_detokenizer(int(index))

    def _lose_detokenizer(self, index: int) -> None:
        """Its successor is told what lives; what is not recalled yet died with it."""
        if self._core is not None and not self._awaited:
            self._recall(self._core)
            self._core.retell(index)
        else:
            self._held.pop(index, None)
            self._awaited.add(index)

    # Messages in.

    def _drain_results(self) -> Iterator[m.ToSchedulerFromExecutor]:
        return map(_results.decode, self._results.drain())

    def _drain_requests(self) -> Iterator[m.ToScheduler]:
        for ring in self._tokenizers:
            yield from map(_requests.decode, ring.drain())

    def _drain_hints(self) -> Iterator[tuple[int, m.ToSchedulerFromDetokenizer]]:
        for index, ring in enumerate(self._hints):
            for record in ring.drain():
                yield index, _hints.decode(record)

    def _on_executor(self, message: m.ToSchedulerFromExecutor) -> None:
        match message:
            case m.Hello():
                self._on_hello(message)
            case m.Moved() if self._core is not None and self._device_ready:
                self._core.moved(message)
            case m.Shelved() if self._core is not None and self._device_ready:
                self._core.shelved(message)
            case m.Result() if self._core is not None and self._device_ready:
                self._overlap.reported(message.clock)
                self._core.advance(message)
            case _:
                raise RuntimeError(f"the executor sent a result before its hello: {message}")

    def _on_hello(self, hello: m.Hello) -> None:
        self._device_ready = True
        self._overlap.restart()
        self.ctx.meter.set("kv_pages", hello.pages)
        limits = self._limits(hello)
        self.ctx.meter.set("host_kv_pages", limits.below.host_pages)
        if self._core is None:
            self._core = Core(limits)
        else:
            self._core.restart(limits.pages, limits.below, self._device_killed)
        if limits.below.disk:
            self._core.shelved(m.Shelved(hello.shelved))

    def _on_detokenizer(self, index: int, message: m.ToSchedulerFromDetokenizer) -> None:
        match message:
            case m.StopHit(uids):
                self._stopped += uids
            case m.Recall(streams, last) if index in self._awaited:
                self._held.setdefault(index, []).extend(streams)
                if last:
                    self._awaited.remove(index)

    def _recall(self, core: Core) -> None:
        """Go on with what a scheduler before this one had, once."""
        if self._held:
            for request, uids in requests_of(self._wanted()):
                self.ctx.at_work(request.uid)
                core.recall(request, uids)
            self.ctx.at_work(0)
            self._held.clear()

    def _wanted(self) -> Iterator[m.Held]:
        """What is held and was not stopped meanwhile."""
        stopped = set(self._stopped)
        for part in self._held.values():
            yield from (held for held in part if held.uid not in stopped)

    def _take_in(self, core: Core) -> None:
        """Requests, unless a detokenizer is far behind; and what is of no use any more."""
        if not self._held_up:
            for message in self._drain_requests():
                self._on_request(core, message)
            self.ctx.at_work(0)
        if self._stopped:
            core.stop(self._stopped)
            self._stopped.clear()

    @property
    def _held_up(self) -> bool:
        """A detokenizer has left its ring full: whatever is made now would pile up here."""
        return any(reader.blocked for reader in self._readers)

    def _on_request(self, core: Core, message: m.ToScheduler) -> None:
        self.ctx.at_work(message.uid)
        match message:
            case m.Request():
                core.submit([message])
            case m.Abort(uid):
                core.abort([uid])
            case m.Inspect():
                self._report(core, message)

    def _limits(self, hello: m.Hello) -> Limits:
        config = self.ctx.config
        below = below_of(hello, config.page_size, config.kv_write) if config.prefix_cache else NOTHING_BELOW
        return Limits(
            pages=hello.pages,
            page_size=config.page_size,
            max_seqs=config.max_seqs,
            max_batched_tokens=config.max_batched_tokens
            or chunk_budget(hello.prefill_rate, config.target_step_ms / 1e3, config.max_seqs),
            max_model_len=config.max_model_len,
            overlap=config.overlap,
            prefix_cache=config.prefix_cache and not hello.state_pages,
            detokenizers=config.detokenizers,
            below=below,
            policy=config.schedule_policy,
            max_overtakes=config.max_overtakes,
            windows=hello.windows,
            state_pages=hello.state_pages,
        )

    # Messages out.

    def _plan(self, core: Core) -> None:
        if not self._device_ready or self._held_up:
            return
        while not self._plans.blocked:
            plan = core.next_plan()
            self._send_moves(core)
            if plan is None:
                return
            self._overlap.planned(plan)
            self._send(plan)

    def _send_moves(self, core: Core) -> None:
        for move in core.take_moves():
            self._plans.send(_encoder.encode(move))

    def _send(self, plan: m.Plan) -> None:
        self._plans.send(_encoder.encode(plan))

    def _deliver(self, core: Core) -> None:
        for index, tokens in core.take():
            self._readers[index].send(_encoder.encode(tokens))

    def _report(self, core: Core, query: m.Inspect) -> None:
        flushed = core.flush_cache() if query.flush else 0
        report = m.CacheReport(query.uid, query.gateway, core.summarize_cache(), flushed)
        reader = self._readers[query.uid % len(self._readers)]
        reader.send(_encoder.encode(m.Tokens(reports=[report])))

    def _measure(self, core: Core) -> None:
        meter, (free, cached, owned) = self.ctx.meter, core.pages
        for name, amount in core.take_counts().by_metric():
            meter.add(name, amount)
        meter.set("requests_running", core.running)
        meter.set("requests_waiting", core.waiting)
        meter.set("kv_pages_free", free)
        meter.set("kv_pages_cached", cached)
        meter.set("kv_pages_owned", owned)
        meter.set("new_token_ratio", core.new_token_ratio)
        oldest = core.oldest_arrival
        meter.set("queue_oldest_seconds", 0.0 if oldest is None else time.monotonic() - oldest)
        if core.tiers.enabled:
            self._measure_tiers(core.tiers)

    def _measure_tiers(self, tiers: Tiers) -> None:
        meter, (on_host, on_disk) = self.ctx.meter, tiers.sizes
        for name, amount in tiers.take_counts().by_metric():
            meter.add(name, amount)
        meter.set("host_kv_pages_cached", on_host)
        meter.set("disk_kv_pages", on_disk)

    # Deadlines.

    def _watch_time(self, core: Core) -> None:
        """Fail what has run out of time, and what stands still."""
        seconds = self.ctx.config.request_stall_seconds
        alarm = core.next_deadline
        if alarm is not None or (seconds and core.busy):
            now = time.monotonic()
            if alarm is not None and alarm <= now:
                core.expire(now)
                alarm = core.next_deadline
            if seconds and core.busy:
                alarm = min(alarm or math.inf, self._watch_stalls(core, now, seconds))
        self._alarm.set(alarm)

    def _watch_stalls(self, core: Core, now: float, seconds: float) -> float:
        """Look now and then; returns when to look again."""
        if now >= self._looked + seconds / LOOKS:
            self._looked = now
            core.fail_stalled(now, seconds)
        return self._looked + seconds / LOOKS

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
