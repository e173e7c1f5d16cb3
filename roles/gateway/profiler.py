"""One gateway's part in a recording: it asks for it, and makes a trace of what all roles have recorded.

The supervisor switches the recording on and off in all roles; what they record stands in memory that every
gateway can read (`shm.trace`). Any gateway may be asked to stop what another one has started.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import orjson

from stretto import __version__
from stretto.roles import messages as m
from stretto.roles.gateway.chrome import chrome
from stretto.roles.gateway.faults import refusal
from stretto.roles.metrics import METRICS, offsets
from stretto.shm.board import Board
from stretto.shm.trace import Recording, Traces

Counters = dict[str, dict[str, float]]
"""By process and metric."""


class Profiler:
    """One gateway's view of the recording: whether there is one, and the way to have it switched."""

    def __init__(self, board: Board, tell: Callable[[m.Profile], None], traces: Callable[[], Traces]) -> None:
        """`tell` reaches the supervisor; `traces` gives the trace memory."""
        self._board, self._tell, self._traces = board, tell, traces
        self._since = 0
        self._before: Counters = {}
        self._asking: list[asyncio.Future[None]] = []

    def traced(self, since: int) -> None:
        """The supervisor has switched the recording on or off in all roles."""
        if since and since != self._since:
            self._before = _counters(self._board)
        self._since = since
        for asked in self._asking:
            if not asked.done():
                asked.set_result(None)
        self._asking.clear()

    async def start(self) -> None:
        """Begin. Raises `Refused` when a recording runs already."""
        mine = time.monotonic_ns()
        if not self._since:
            await self._ask(mine)
        if self._since != mine:
            raise refusal("A profile is being recorded already; POST /stop_profile ends it.", status=409)

    async def stop(self) -> bytes:
        """End, and give the trace as JSON. Raises `Refused` when no recording runs."""
        since, before = self._since, self._before
        if not since:
            raise refusal("No profile is being recorded; POST /start_profile begins one.", status=409)
        await self._ask(0)
        counters = _grown(before, _counters(self._board))
        return await asyncio.to_thread(_trace, self._traces(), since, time.monotonic_ns(), counters)

    async def _ask(self, since: int) -> None:
        asked = asyncio.get_running_loop().create_future()
        self._asking.append(asked)
        self._tell(m.Profile(since))
        await asked


def _trace(traces: Traces, since: int, until: int, counters: Counters) -> bytes:
    read = {name: traces.section(name).read() for name in traces.names}
    recordings = {name: recording for name, recording in read.items() if recording.since == since}
    other: dict[str, Any] = {
        "version": __version__,
        "seconds": (until - since) / 1e9,
        "dropped": _dropped(recordings),
        "counters": counters,
    }
    return orjson.dumps(chrome(recordings, other))


def _dropped(recordings: dict[str, Recording]) -> dict[str, int]:
    """Spans that found a section full, by process."""
    return {name: recording.dropped for name, recording in recordings.items() if recording.dropped}


def _counters(board: Board) -> Counters:
    """What every process has counted so far."""
    return {name: _counted(board, name) for name in board.names}


def _counted(board: Board, name: str) -> dict[str, float]:
    role, row = name.partition(".")[0], board.row(name)
    names = {metric.name for metric in METRICS[role] if metric.kind == "counter"}
    return {metric: row[at] for metric, (at, _) in offsets(role).items() if metric in names}


def _grown(before: Counters, after: Counters) -> Counters:
    return {
        name: {metric: value - before[name][metric] for metric, value in counted.items()}
        for name, counted in after.items()
    }
