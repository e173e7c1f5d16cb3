"""Mixed requests, cancels and errors for a long time: memory flat, files constant, nothing kept.

    stretto bench soak --minutes 60 [--streams 32] [--json FILE]

The first fifth of the time is warm-up. Exit code 1 where a process grows after it, dies, or keeps anything at
the end; the scheduler verifies its invariants whenever it is idle, and dies of a broken one.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import httpx

from stretto.bench.census import census, grown, told
from stretto.bench.launch import Launch, launch
from stretto.bench.options import described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, report_options, table
from stretto.bench.settled import leftovers
from stretto.bench.trials import Trial, ask, trials
from stretto.roles.client.aio import AsyncClient

WARM_UP = 0.2
GROWTH_MIB = 24.0
"""What a process may hold more after the warm-up: allocators do not give back all."""
EXTRA_FILES = 2
KV_MEMORY = "4096tokens"
"""Small, so that all of the pool is in use, and pages are evicted, before the warm-up is over."""
CANCEL, BAD = 0.2, 0.1
"""Shares of requests that are cancelled on their way, and that are wrong."""
_BAD: tuple[dict[str, Any], ...] = (
    {"prompt": "x", "max_tokens": -1},
    {"prompt": "x", "temperature": 9},
    {"prompt": [10**9], "max_tokens": 1},
    {"prompt": "word " * 20_000, "max_tokens": 1},
    {"prompt": None},
)


@click.command("soak", help=described(__doc__))
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True)
@click.option("--streams", type=click.IntRange(1), default=32, show_default=True, help="At a time.")
@click.option("--tokens", type=click.IntRange(2), default=64, show_default=True, help="Per answer, at most.")
@click.option("--seed", type=int, default=0, show_default=True)
@report_options
def main(json_file: Path | None, plot_file: Path | None, **options: Any) -> None:
    """Run, report, judge."""
    report = Report("soak", json_file, plot_file)
    with launch("--kv-memory", KV_MEMORY) as server:
        figures = asyncio.run(Soak(server, **options).run())
    warm, end = figures["warm"], figures["end"]
    rows = [
        [t, f"{warm[t]['mib']:.0f}", f"{end[t]['mib']:.0f}", str(warm[t]["files"]), str(end[t]["files"])]
        for t in warm.keys() & end.keys()
    ]
    print(table(["process", "MiB warm", "MiB end", "files warm", "files end"], sorted(rows)))
    print(f"{figures['answers']}\n" + "\n".join(figures["faults"]))
    places = sorted(warm.keys() & end.keys())
    series = {"warm": [warm[p]["mib"] for p in places], "end": [end[p]["mib"] for p in places]}
    report.publish(figures, Chart("Memory of each process", "bars", places, series, y_label="MiB"))
    sys.exit(1 if figures["faults"] else 0)


class Soak:
    """One run against one server."""

    def __init__(self, server: Launch, minutes: float, streams: int, tokens: int, seed: int = 0) -> None:
        self._server, self._seconds, self._streams = server, 60 * minutes, streams
        self._trials = trials(tokens)
        self._random = random.Random(seed)
        self._answers: Counter[str] = Counter()
        self._faults: list[str] = []

    async def run(self) -> dict[str, Any]:
        """The figures, with `faults` empty if all went well."""
        await self._load(WARM_UP * self._seconds)
        warm = await asyncio.to_thread(census, self._server)
        await self._load((1 - WARM_UP) * self._seconds)
        end = await asyncio.to_thread(census, self._server)
        self._faults += grown(warm, end, GROWTH_MIB, EXTRA_FILES)
        roles = httpx.get(self._server.url + "/health").json()["roles"]
        self._faults += [f"{name} died {r['restarts']} times" for name, r in roles.items() if r["restarts"]]
        return {
            "seconds": self._seconds,
            "streams": self._streams,
            "answers": dict(self._answers),
            "warm": told(warm),
            "end": told(end),
            "faults": self._faults,
        }

    async def _load(self, seconds: float) -> None:
        """Load for so long, then wait until the server has let go of everything."""
        until = time.monotonic() + seconds
        url = self._server.url
        http_client = httpx.AsyncClient(base_url=url, timeout=None)
        async with http_client as http, AsyncClient(url) as socket, asyncio.TaskGroup() as group:
            for _ in range(self._streams):
                group.create_task(self._play(until, http, socket))
        self._faults += await asyncio.to_thread(leftovers, self._server)

    async def _play(self, until: float, http: httpx.AsyncClient, socket: AsyncClient) -> None:
        while time.monotonic() < until:
            dice = self._random.random()
            if dice < BAD:
                await self._err(http)
            elif dice < BAD + CANCEL:
                await self._cancel(http, socket)
            else:
                await self._ask(http, socket)

    def _trial(self) -> Trial:
        """A prompt that nobody has asked, so that the cache is never done."""
        trial = self._random.choice(self._trials)
        prompt = f"{self._random.getrandbits(48):x} {trial.body['prompt']}" * self._random.randint(1, 8)
        return trial._replace(body={**trial.body, "prompt": prompt})

    async def _ask(self, http: httpx.AsyncClient, socket: AsyncClient) -> None:
        outcome = await ask(self._trial(), http, socket)
        self._answers["failed" if outcome.error else "whole"] += 1
        if outcome.error:
            self._faults.append(outcome.error)

    async def _cancel(self, http: httpx.AsyncClient, socket: AsyncClient) -> None:
        """Leave at some moment."""
        try:
            await asyncio.wait_for(ask(self._trial(), http, socket), self._random.uniform(0.01, 2))
            self._answers["whole"] += 1
        except TimeoutError:
            self._answers["cancelled"] += 1

    async def _err(self, http: httpx.AsyncClient) -> None:
        answer = await http.post("/v1/completions", json=self._random.choice(_BAD))
        self._answers["refused"] += 1
        if not 400 <= answer.status_code < 500:
            self._faults.append(f"a wrong request got {answer.status_code}")


if __name__ == "__main__":
    main()
