"""The executor: takes plans from the scheduler, keeps the device busy with them, sends results back.

    plans ──▶ launch (at most two in flight) ──▶ device ──▶ collect ──▶ results

The loop never waits for the device: a step that lands wakes it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from stretto.kernels import cache, threads
from stretto.roles import messages as m
from stretto.roles.actor import Context, Role, edge
from stretto.roles.trace import Probe, span

SCHEDULER = "scheduler.0"

_encode = msgspec.msgpack.Encoder().encode
_decode_plan = msgspec.msgpack.Decoder(m.Plan).decode


class Executor(Role):
    """See the module. State: the plans received but not launched, and whether the scheduler knows us."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._plans: deque[m.Plan] = deque()
        self._introduced = False

    async def open(self) -> dict[str, Any]:
        config = self.ctx.config
        cache.use(config.cache_dir)
        threads.configure(config.threads)
        from stretto.roles.executor.build import build  # imports torch and the kernels

        built = build(config, self.ctx.wake_from_thread, self._progress)
        self._runner, self._pages = built.runner, built.pages
        self._progress("warming up")
        await self._warm_up()
        return {
            "device": built.device,
            "dtype": built.dtype,
            "pages": built.pages,
            "page_size": config.page_size,
            "model": config.model_dir,
        }

    def turn(self) -> None:
        results = self._runner.collect()
        if not self._introduced:
            if self._runner.in_flight:
                return  # steps whose scheduler is gone: their results are dropped
            results = []
            self._introduce()
        for result in results:
            self._send(result)
        self._plans.extend(_decode_plan(data) for data in self.ctx.receiver(SCHEDULER).drain())
        while self._plans and self._runner.ready:
            self._runner.launch(self._plans.popleft())

    def probes(self) -> tuple[Probe, ...]:
        """See `roles.actor`."""
        from stretto.roles.executor.probes import PROBES  # imports torch, which is there by now

        return (span(Executor, "turn", "turn"), span(Executor, "_send", "encode"), *PROBES)

    def rewired(self, edge_name: str) -> None:
        """A new scheduler: it knows nothing of the slots, and plans nothing before our `Hello`."""
        if edge_name == edge(self.ctx.name, SCHEDULER):
            self._plans.clear()
            self._introduced = False

    async def close(self) -> None:
        self._runner.close()

    def _introduce(self) -> None:
        """Forget what came before, and tell the scheduler what there is."""
        self._runner.reset()
        self._send(m.Hello(pages=self._pages))
        self._introduced = True

    async def _warm_up(self) -> None:
        """One step of one token, so that the first request does not pay for what is done once."""
        admit = m.Admit(slot=0, length=0, pages=bytes(4), sampling=m.Sampling())
        chunk = b"".join(value.to_bytes(4, "little") for value in (0, 1, 1))
        self._runner.launch(m.Plan(step=0, admits=[admit], chunks=chunk, chunk_ids=bytes(4)))
        while not self._runner.collect():
            await self.ctx.wait()

    def _send(self, message: m.Hello | m.Result) -> None:
        self.ctx.sender(SCHEDULER).send(_encode(message))

    def _progress(self, text: str) -> None:
        self.ctx.tell(m.Progress(text))
