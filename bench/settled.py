"""Whether a server that nobody asks any more has let go of everything."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable

from stretto.bench.launch import Launch

PATIENCE_SECONDS = 60.0
GAUGES = ("requests_live", "requests_running", "requests_waiting", "streams_live", "kv_pages_owned")
"""Zero when nothing is asked."""


def leftovers(server: Launch, patience: float = PATIENCE_SECONDS) -> list[str]:
    """Wait until the server is well and idle; what of it is not so at the end, in words."""
    deadline = time.monotonic() + patience
    while (left := _look(server)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _look(server: Launch) -> list[str]:
    try:
        with urllib.request.urlopen(server.url + "/health", timeout=10):
            return held(server.metrics().get)
    except OSError as error:
        return [f"not well: {error}"]


def held(figure: Callable[[str, float], float]) -> list[str]:
    """What an idle server still holds, by its metrics: `figure(name, default)`."""
    values = {name: figure(f"stretto_{name}", 0.0) for name in GAUGES}
    left = [f"{name} is {value:.0f} on an idle server" for name, value in values.items() if value]
    free, cached = figure("stretto_kv_pages_free", 0.0), figure("stretto_kv_pages_cached", 0.0)
    pages = figure("stretto_kv_pages", 0.0)
    if free + cached != pages:
        left.append(f"{pages - free - cached:.0f} of {pages:.0f} KV pages are leaked")
    return left
