"""A flood of connections, of requests and of clients that never read; what it costs, and who is served after.

    stretto bench flood [--connections 2000] [--requests 10000] [--deaf 50] [--json FILE]

Exit code 1 where `/health` takes longer than a second, a process grows by more than its share of what waits,
a request that has room does not wait, a good request fails afterwards, or something is kept when it is over.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import httpx

from stretto.bench.census import Census, census, grown, peak, told
from stretto.bench.launch import Launch, launch
from stretto.bench.options import described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, report_options, table
from stretto.bench.settled import leftovers
from stretto.roles.client.aio import AsyncClient, AsyncStream
from stretto.roles.client.errors import StrettoError
from stretto.roles.preflight import raise_file_limit

HEALTH_SECONDS = 1.0
KIB_PER_REQUEST = 16.0
"""What a queued request, whose prompt is 1 KB, may cost a process."""
GROWTH_MIB = 64.0
"""What a process may hold more besides."""
KV_MEMORY = "4096tokens"
"""Small, so that it has no part in what grows: one page after the other is touched."""
RESUME_SECONDS = 5.0
"""A client that leaves a busy server may not get its goodbye through; what it asked for goes on so long."""
SOCKETS = 20
"""WebSockets that carry the requests."""
_GOOD: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
_QUEUED: dict[str, Any] = {"prompt": "All work and no play makes Jack a dull boy. " * 20, "max_tokens": 64}
_DEAF: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 2000, "stream": True, "ignore_eos": True}


@click.command("flood", help=described(__doc__))
@click.option("--connections", type=click.IntRange(0), default=2000, show_default=True, help="Idle ones.")
@click.option("--requests", type=click.IntRange(1), default=10_000, show_default=True, help="Queued at once.")
@click.option("--deaf", type=click.IntRange(0), default=50, show_default=True,
              help="Streams whose clients never read.")  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="It lasts so long."
)
@report_options
def main(json_file: Path | None, plot_file: Path | None, **options: Any) -> None:
    """Run, report, judge."""
    report = Report("flood", json_file, plot_file)
    raise_file_limit()
    with launch(*_limits(options["requests"] + options["deaf"])) as server:
        figures = asyncio.run(Flood(server, **options).run())
    holdings = figures["holdings"]
    rows = [
        [title, *(f"{holdings[when].get(title, {}).get('mib', 0):.0f}" for when in holdings)]
        for title in holdings["before"]
    ]
    print(table(["MiB of its own", *holdings], rows))
    print(
        f"/health took {figures['health_max_s']:.3f} s at most; {figures['queued_max']} requests waited "
        f"at once, {figures['refused']} were refused"
    )
    print("\n".join(figures["faults"]))
    places = list(holdings["before"])
    series = {when: [holdings[when].get(p, {}).get("mib", 0.0) for p in places] for when in holdings}
    report.publish(figures, Chart("Memory of each process", "bars", places, series, y_label="MiB"))
    sys.exit(1 if figures["faults"] else 0)


def _limits(requests: int) -> list[str]:
    """Options of a server that lets so many wait."""
    options = {
        "max-queued-requests": requests,
        "max-queued-tokens": 0,
        "resume-seconds": RESUME_SECONDS,
        "kv-memory": KV_MEMORY,
    }
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


class Flood:
    """One flood against one server."""

    def __init__(self, server: Launch, connections: int, requests: int, deaf: int, seconds: float) -> None:
        self._server = server
        self._connections, self._requests, self._deaf, self._seconds = connections, requests, deaf, seconds
        self._answers: Counter[str] = Counter()
        self._health: list[float] = []
        self._queued = 0
        self._peak: Census = {}
        self._over = threading.Event()
        self._faults: list[str] = []

    async def run(self) -> dict[str, Any]:
        """The figures, with `faults` empty if all went well."""
        await self._serve_good()
        before = await asyncio.to_thread(census, self._server)
        watch = asyncio.create_task(asyncio.to_thread(self._watch))
        await self._flood()
        self._over.set()
        await watch
        self._faults += await asyncio.to_thread(leftovers, self._server)
        await self._serve_good()
        after = await asyncio.to_thread(census, self._server)
        self._judge(before)
        holdings = {"before": told(before), "peak": told(self._peak), "after": told(after)}
        return {
            "connections": self._connections,
            "requests": self._requests,
            "deaf": self._deaf,
            "health_max_s": round(max(self._health), 3),
            "queued_max": self._queued,
            "refused": self._answers["429"],
            "answers": dict(self._answers),
            "holdings": holdings,
            "faults": self._faults,
        }

    def _judge(self, before: Census) -> None:
        if max(self._health) > HEALTH_SECONDS:
            self._faults.append(f"/health took {max(self._health):.2f} s")
        growth = GROWTH_MIB + KIB_PER_REQUEST * self._requests / 1024
        self._faults += grown(before, self._peak, growth, self._connections + self._deaf + 10 * SOCKETS)
        if odd := {k: n for k, n in self._answers.items() if k not in ("ended", "cancelled")}:
            self._faults.append(f"requests that had room ended otherwise: {odd}")

    async def _serve_good(self) -> None:
        async with httpx.AsyncClient(base_url=self._server.url, timeout=60) as http:
            answer = await http.post("/v1/completions", json=_GOOD)
        if answer.is_error:
            self._faults.append(f"a good request got {answer.status_code}: {answer.text[:200]}")

    async def _flood(self) -> None:
        """All at once, for a while; then everybody leaves."""
        crowd = [await self._connect(b"GET /health HTTP/1.1\r\n") for _ in range(self._connections)]
        body = json.dumps(_DEAF).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        crowd += [await self._connect(head + body) for _ in range(self._deaf)]
        clients = [AsyncClient(self._server.url) for _ in range(SOCKETS)]
        streams = [clients[i % SOCKETS].stream(stream=False, **_QUEUED) for i in range(self._requests)]
        waiting = [asyncio.create_task(self._await(stream)) for stream in streams]
        await asyncio.sleep(self._seconds)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting)
        for client in clients:
            await client.close()
        for writer in crowd:
            writer.transport.abort()

    async def _connect(self, begin: bytes) -> asyncio.StreamWriter:
        """A connection that says this much and never reads; its reader stops at a few kilobytes."""
        parts = urlsplit(self._server.url)
        _, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 12)
        writer.write(begin)
        return writer

    async def _await(self, stream: AsyncStream) -> None:
        try:
            await stream.result()
            self._answers["ended"] += 1
        except StrettoError as error:
            self._answers[str(error.status or error.code)] += 1
        except asyncio.CancelledError:
            self._answers["cancelled"] += 1

    def _watch(self) -> None:
        """Ask for the health and count what is held, again and again; on a thread, as the loop is busy."""
        with httpx.Client(base_url=self._server.url, timeout=60) as http:
            while not self._over.wait(0.5):
                began = time.monotonic()
                try:
                    http.get("/health")
                except httpx.HTTPError as error:
                    self._faults.append(f"/health failed: {error!r}")
                self._health.append(time.monotonic() - began)
                self._queued = max(
                    self._queued, int(self._server.metrics().get("stretto_requests_queued", 0))
                )
                self._peak = peak(self._peak, census(self._server))


if __name__ == "__main__":
    main()
