"""Many requests through one client, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from stretto.roles.client.aio import AsyncClient
from stretto.roles.client.errors import ConnectionFailed, StrettoError
from stretto.roles.client.frames import Completion

Arrived = Callable[[int, Completion], object]


async def run(client: AsyncClient, requests: Iterable[dict[str, Any]], ahead: int, arrived: Arrived) -> None:
    """Send requests in order, at most `ahead` unanswered at once, and call `arrived(place, answer)` for each.

    `requests` holds the arguments of `AsyncClient.generate`, drawn only when they can be sent, so that a long
    list costs the server nothing. The first request that fails ends the batch: the others are cancelled, and
    its `StrettoError`, which then names its place, is raised.
    """
    places = enumerate(requests)

    async def work() -> None:
        for place, request in places:
            try:
                arrived(place, await client.generate(**request))
            except ConnectionFailed:  # no prompt's fault
                raise
            except StrettoError as error:
                raise error.at(f"prompt {place}") from error

    workers = [asyncio.create_task(work()) for _ in range(ahead)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
