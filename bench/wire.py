"""How the load generator asks: the interface of its two clients, and what they share."""

from __future__ import annotations

import ssl
from asyncio import BaseTransport, Protocol, get_running_loop
from collections.abc import Callable
from typing import Any, TypeVar
from typing import Protocol as Interface
from urllib.parse import urlsplit

from stretto.bench.answer import Answer
from stretto.roles.client.address import Address

P = TypeVar("P", bound=Protocol)


class Wire(Interface):
    """A client that costs as little as it can, so that what is measured is the server."""

    async def ask(self, body: dict[str, Any]) -> Answer:
        """Send a body of `/v1/completions` and wait for the end of the answer.

        Whatever goes wrong is told in the answer's `error`: a load goes on when a request fails.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


async def connect(address: Address, factory: Callable[[], P]) -> P:
    """A connection to a server, by TCP, TLS or Unix socket. Raises `OSError`."""
    loop = get_running_loop()
    made: tuple[BaseTransport, P]
    if address.uds is not None:
        made = await loop.create_unix_connection(factory, address.uds)
    else:
        parts = urlsplit(address.http)
        port = parts.port or (443 if address.secure else 80)
        context = ssl.create_default_context() if address.secure else None
        made = await loop.create_connection(factory, parts.hostname or "", port, ssl=context)
    return made[1]
