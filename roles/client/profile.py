"""`stretto profile`: record a running server for a while, keep the trace, and print what it says."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stretto.roles.client.address import NOTHING_LISTENS, parse
from stretto.roles.client.profile_report import report
from stretto.roles.client.profile_tables import show

if TYPE_CHECKING:
    import httpx
    from rich.console import Console

ANSWER_SECONDS = 120.0
"""How long the server may take to put a trace together."""
VIEWERS = "https://ui.perfetto.dev or chrome://tracing"


def profile(
    url: str,
    out: Path,
    *,
    seconds: float,
    uds: str | None = None,
    key: str | None = None,
    console: Console | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Record for so many seconds; Ctrl-C ends it early. Returns 0, or 1 where there is no trace to be had."""
    import httpx
    from rich.console import Console

    failures = console or Console(stderr=True, highlight=False)
    console = console or Console(highlight=False)
    where = parse(url, uds)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    transport = httpx.HTTPTransport(uds=where.uds) if where.uds else None
    try:
        with httpx.Client(
            base_url=where.http,
            transport=transport,
            headers=headers,
            timeout=ANSWER_SECONDS,
            trust_env=not where.is_local,
        ) as http:
            trace = _record(http, seconds, sleep)
    except httpx.ConnectError:
        failures.print(NOTHING_LISTENS.format(where), markup=False, soft_wrap=True)
        return 1
    except httpx.HTTPStatusError as error:
        failures.print(_words(error.response), markup=False, soft_wrap=True)
        return 1
    except httpx.HTTPError as error:
        failures.print(f"{where} did not give a trace: {error}", markup=False, soft_wrap=True)
        return 1
    out.write_bytes(trace)
    show(report(json.loads(trace)), console)
    console.print(f"{out} can be opened in {VIEWERS}", markup=False)
    return 0


def _record(http: httpx.Client, seconds: float, sleep: Callable[[float], None]) -> bytes:
    http.post("/start_profile").raise_for_status()
    with contextlib.suppress(KeyboardInterrupt):
        sleep(seconds)
    return http.post("/stop_profile").raise_for_status().content


def _words(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.url} answered {answer.status_code}; is it a Stretto server?"
