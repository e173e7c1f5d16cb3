"""Where a server is: a URL, or the path of a Unix socket."""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

DEFAULT_URL = "http://127.0.0.1:8000"
NOTHING_LISTENS = "nothing listens at {}; start a server with `stretto serve`, or say where one is"
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


class Address(NamedTuple):
    """A server's address; `uds`, where set, is the socket and `host` only a name for the Host header."""

    secure: bool
    host: str
    """Host, port and path prefix, as in "127.0.0.1:8000" or "example.com/llm"."""
    uds: str | None = None

    @property
    def http(self) -> str:
        """Base URL, without `/v1`."""
        return f"{'https' if self.secure else 'http'}://{self.host}"

    @property
    def websocket(self) -> str:
        return f"{'wss' if self.secure else 'ws'}://{self.host}/v1/stream"

    @property
    def is_local(self) -> bool:
        """On this machine, so that no proxy of the environment may come between."""
        return self.uds is not None or _is_loopback(urlsplit(self.http).hostname or "")

    def __str__(self) -> str:
        return f"unix:{self.uds}" if self.uds else self.http


def parse(url: str = DEFAULT_URL, uds: str | None = None) -> Address:
    """Read what a user typed; a trailing `/v1`, as OpenAI's clients want it, is accepted.

    Raises `ValueError` for a URL that names no HTTP server.
    """
    if uds:
        return Address(False, "localhost", uds)
    parts = urlsplit(url if "://" in url else "http://" + url)
    if parts.scheme not in _SCHEMES or not parts.hostname or not _has_valid_port(parts):
        raise ValueError(f"{url!r} is not a server's address; give it as {DEFAULT_URL}")
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    return Address(_SCHEMES[parts.scheme] == "wss", parts.netloc + prefix)


def listens(address: Address, timeout: float = 5.0) -> bool:
    """Whether somebody takes connections there; waits at most `timeout` seconds."""
    try:
        if address.uds is not None:
            with socket.socket(socket.AF_UNIX) as unix:
                unix.connect(address.uds)
        else:
            parts = urlsplit(address.http)
            port = parts.port or (443 if address.secure else 80)
            socket.create_connection((parts.hostname, port), timeout).close()
    except OSError:
        return False
    return True


def _has_valid_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:  # no number, or beyond 65535
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
