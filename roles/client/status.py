"""What a server says of itself, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stretto.roles.client.address import DEFAULT_URL, NOTHING_LISTENS, Address, parse

if TYPE_CHECKING:
    import httpx
    from rich.console import Console

SECONDS = 10.0
"""How long an answer may take."""

Figures = Mapping[str, float]
"""Metrics by name, summed over processes."""


def status(url: str = DEFAULT_URL, *, uds: str | None = None, console: Console | None = None) -> int:
    """Print the roles' health and a few figures; returns 0 if all is well, 1 if not or nothing listens."""
    import httpx
    from rich.console import Console

    console = console or Console(highlight=False)
    where = parse(url, uds)
    try:
        with _open(where) as http:
            health = http.get("/health")
            figures = _figures(http.get("/metrics").text)
            body = health.json()
    except httpx.ConnectError:
        console.print(NOTHING_LISTENS.format(where), markup=False)
        return 1
    except (httpx.HTTPError, ValueError) as error:
        console.print(f"{where} does not answer as a Stretto server does: {error}", markup=False)
        return 1
    console.print(_roles(where, body), _summary(figures))
    return 0 if health.status_code == httpx.codes.OK else 1


def _open(where: Address) -> httpx.Client:
    import httpx

    transport = httpx.HTTPTransport(uds=where.uds) if where.uds else None
    return httpx.Client(
        base_url=where.http, transport=transport, timeout=SECONDS, trust_env=not where.is_local
    )


def _figures(exposition: str) -> Figures:
    from prometheus_client.parser import text_string_to_metric_families

    figures: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            figures[sample.name] = figures.get(sample.name, 0.0) + sample.value
    return figures


def _roles(where: Address, health: Mapping[str, Any]) -> Any:
    from rich.table import Table

    table = Table("role", "state", "heartbeat", "restarts", title=f"{where}: {health.get('status')}")
    missing = health.get("missing", ())
    for name, role in health.get("roles", {}).items():
        age = role.get("heartbeat_age_seconds")
        heard = "never" if age is None else f"{age:.1f} s ago"
        style = "red" if name in missing else None
        table.add_row(name, role.get("state"), heard, str(role.get("restarts")), style=style)
    return table


def _summary(figures: Figures) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in summarize(figures):
        table.add_row(name, value)
    return table


def summarize(figures: Figures) -> list[tuple[str, str]]:
    """The figures that tell how busy a server is, in words."""

    def of(name: str) -> float:
        return figures.get(f"stretto_{name}", 0.0)

    idle, busy = of("device_idle_seconds_total"), of("device_busy_seconds_total")
    cached = _share(of("cached_tokens_total"), of("prompt_tokens_total"))
    tokens = f"{of('prompt_tokens_total'):.0f} prompt ({cached} cached)"
    pages = f"{of('kv_pages_owned'):.0f} in use, {of('kv_pages_cached'):.0f} cached, of {of('kv_pages'):.0f}"
    return [
        ("requests", f"{of('requests_running'):.0f} running, {of('requests_waiting'):.0f} waiting"),
        ("KV pages", pages),
        ("tokens", f"{tokens}, {of('generated_tokens_total'):.0f} generated"),
        ("device", f"{_share(idle, idle + busy)} idle while there was work"),
        ("one step ahead", f"{_share(of('steps_ahead_total'), of('steps_followed_total'))} of steps"),
    ]


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
