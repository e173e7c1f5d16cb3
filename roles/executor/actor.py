"""The executor: takes plans from the scheduler, keeps the device busy with them, sends results back.

    plans ──▶ launch (at most two in flight) ──▶ device ──▶ collect ──▶ results

The loop never waits for the device: a step that lands wakes it. Moves of KV between tiers begin as soon as
they come, beside the steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from importlib import import_module
from threading import Thread
from typing import Any

import msgspec

from stretto.kernels import cache, threads
from stretto.roles import messages as m
from stretto.roles.actor import Context, Role, SetupError, edge
from stretto.roles.config import Config
from stretto.roles.preflight import advice
from stretto.roles.trace import Probe, span

SCHEDULER = "scheduler.0"
INDEX_SECONDS = 0.2
"""For so long the first requests wait until it is known what is on disk."""
LISTINGS = 16
"""Messages of keys that go into `Hello`: a megabyte, of the four that a record may have."""

_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], m.ToExecutor] = msgspec.msgpack.Decoder(m.ToExecutor).decode


class Executor(Role):
    """See the module. State: the plans received but not launched, and whether the scheduler knows us."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._plans: deque[m.Plan] = deque()
        self._introduced = False
        self._prefill_rate = 0.0

    @classmethod
    def load(cls, config: Config) -> None:
        """Import torch and the kernels, in the environment that this configuration wants."""
        cache.use(config.cache_dir)
        threads.configure(config.threads)
        import_module("stretto.roles.executor.build")

    async def open(self) -> dict[str, Any]:
        config = self.ctx.config
        self.load(config)
        from stretto.roles.executor.build import build

        with _keeping_kernels(config.cache_dir):
            built = build(config, self.ctx.wake_from_thread, self._progress)
        self._runner, self._pages, self._tiers = built.runner, built.pages, built.tiers
        self._windows, self._state_pages = built.windows, built.state_pages
        self._progress("warming up")
        with _keeping_kernels(config.cache_dir):
            await self._warm_up()
        await self._wait_for_index()
        Thread(target=cache.remove_unused, args=(config.cache_dir,), daemon=True).start()
        return {
            "device": built.device,
            "dtype": built.dtype,
            "pages": built.pages,
            "page_size": config.page_size,
            "model": config.model_dir,
        }

    def turn(self) -> None:
        answers = [*self._runner.collect(), *self._collect_moves()]
        if not self._introduced:
            if self._runner.in_flight or not (self._tiers is None or self._tiers.transfers.idle):
                return  # steps and moves whose scheduler is gone: their answers are dropped
            answers = []
            self._introduce()
        for answer in answers:
            self._send(answer)
        for data in self.ctx.receiver(SCHEDULER).drain():
            self._take(_decode(data))
        while self._plans and self._runner.ready:
            self._runner.launch(self._plans.popleft())

    def probes(self) -> tuple[Probe, ...]:
        """See `roles.actor`."""
        from stretto.roles.executor.probes import PROBES  # imports torch, which is there by now

        return (span(Executor, "turn", "turn"), span(Executor, "_send", "encode"), *PROBES)

    def rewired(self, edge_name: str, killed: bool = False) -> None:
        """A new scheduler: it knows nothing of the slots, and plans nothing before our `Hello`."""
        if edge_name == edge(self.ctx.name, SCHEDULER):
            self._plans.clear()
            self._introduced = False
            if self._tiers is not None:
                self._tiers.transfers.forget()

    async def close(self) -> None:
        if self._tiers is not None:
            self._tiers.transfers.close()
        self._runner.close()

    def _introduce(self) -> None:
        """Forget what came before, and tell the scheduler what there is."""
        self._runner.reset()
        listings = [] if self._tiers is None else self._tiers.transfers.introduce()
        shelved = b"".join(listing.added for listing in listings[:LISTINGS])
        self._send(msgspec.structs.replace(self._hello(), shelved=shelved))
        for listing in listings[LISTINGS:]:
            self._send(listing)
        self._introduced = True

    def _hello(self) -> m.Hello:
        if self._tiers is None:
            return m.Hello(
                self._pages,
                prefill_rate=self._prefill_rate,
                windows=self._windows,
                state_pages=self._state_pages,
            )
        _, host_pages, disk, copy_rate = self._tiers
        return m.Hello(self._pages, host_pages, disk, copy_rate, prefill_rate=self._prefill_rate)

    def _take(self, message: m.ToExecutor) -> None:
        if isinstance(message, m.Plan):
            self._plans.append(message)
        elif self._tiers is None:
            raise RuntimeError(f"move {message.number} to or from memory that there is not")
        else:
            self._tiers.transfers.start(message)

    def _collect_moves(self) -> list[m.Moved | m.Shelved]:
        if self._tiers is None:
            return []
        answers = self._tiers.transfers.collect()
        for name, amount in self._tiers.transfers.take_counts():
            self.ctx.meter.add(name, amount)
        return answers

    async def _warm_up(self) -> None:
        """A few steps: the first request is not to pay for what is done once, and the pace is learnt."""
        from stretto.roles.executor.pace import prefill_rate, prompt_plan

        config, layout = self.ctx.config, (len(self._windows), self._state_pages)
        await self._compute(prompt_plan(1, config.page_size, *layout))
        if not config.max_batched_tokens or self._tiers is not None:
            pages = (self._pages - self._state_pages) // len(self._windows)
            room = min(pages * config.page_size, config.max_model_len or sys.maxsize)
            self._prefill_rate = await prefill_rate(self._compute, room, config.page_size, *layout)

    async def _wait_for_index(self) -> None:
        """Prompts that come with us are to find what they left on disk, where that is soon known."""
        if self._tiers is None:
            return
        until = time.monotonic() + INDEX_SECONDS
        alarm = asyncio.get_running_loop().call_later(INDEX_SECONDS, self.ctx.wake)
        while not self._tiers.transfers.indexed and time.monotonic() < until:
            await self.ctx.wait()
        alarm.cancel()

    async def _compute(self, plan: m.Plan) -> m.Result:
        """Run a plan that nobody asked for."""
        self._runner.launch(plan)
        while not (results := self._runner.collect()):
            await self.ctx.wait()
        return results[0]

    def _send(self, message: m.ToSchedulerFromExecutor) -> None:
        self.ctx.sender(SCHEDULER).send(_encode(message))

    def _progress(self, text: str) -> None:
        self.ctx.tell(m.Progress(text))


@contextlib.contextmanager
def _keeping_kernels(directory: str) -> Iterator[None]:
    """A full disk is told as what its user can mend. Raises `SetupError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise SetupError(
            f"cannot keep compiled kernels in {directory}: {advice(error)}, or set STRETTO_CACHE to another "
            "place"
        ) from error
