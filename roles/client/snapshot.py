"""What a server says of itself at one moment, and what happened between two moments."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from stretto.roles.client.address import NOTHING_LISTENS, Address

if TYPE_CHECKING:
    import httpx

SECONDS = 10.0
"""How long an answer may take."""

Figures = Mapping[str, float]
"""Metrics by name, summed over processes."""


class NoAnswer(Exception):
    """Nothing listens there, or it is no Stretto server; the message says so."""


class Snapshot(NamedTuple):
    """One look at a server."""

    healthy: bool
    health: Mapping[str, Any]
    """The body of `/health`."""
    figures: Figures
    at: float
    """`time.monotonic()` seconds."""

    def of(self, name: str) -> float:
        """A metric without its prefix; 0 where there is none of this name."""
        return self.figures.get(f"stretto_{name}", 0.0)

    def since(self, before: Snapshot) -> Callable[[str], float]:
        """By how much a metric has grown since then."""
        return lambda name: self.of(name) - before.of(name)

    @property
    def roles(self) -> Mapping[str, Mapping[str, Any]]:
        """Processes by name, as in `/health`."""
        roles: Mapping[str, Mapping[str, Any]] = self.health.get("roles", {})
        return roles


def client(where: Address) -> httpx.Client:
    """An HTTP client for this server."""
    import httpx

    transport = httpx.HTTPTransport(uds=where.uds) if where.uds else None
    return httpx.Client(
        base_url=where.http, transport=transport, timeout=SECONDS, trust_env=not where.is_local
    )


def look(http: httpx.Client, where: Address) -> Snapshot:
    """Ask for health and metrics. Raises `NoAnswer`."""
    import httpx

    try:
        health, metrics = http.get("/health"), http.get("/metrics")
        figures, body = parse(metrics.text), health.json()
        return Snapshot(health.status_code == httpx.codes.OK, dict(body), figures, time.monotonic())
    except httpx.ConnectError:
        raise NoAnswer(NOTHING_LISTENS.format(where)) from None
    except (httpx.HTTPError, ValueError, TypeError) as error:
        raise NoAnswer(f"{where} does not answer as a Stretto server does: {error}") from None


def parse(exposition: str) -> Figures:
    """Prometheus's text format, summed over labels."""
    from prometheus_client.parser import text_string_to_metric_families

    figures: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            figures[sample.name] = figures.get(sample.name, 0.0) + sample.value
    return figures
