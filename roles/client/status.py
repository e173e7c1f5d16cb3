"""What a server says of itself, as tables or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stretto.roles.client import snapshot
from stretto.roles.client.address import DEFAULT_URL, Address, parse
from stretto.roles.client.snapshot import NoAnswer, Snapshot

if TYPE_CHECKING:
    from rich.console import Console


def status(
    url: str = DEFAULT_URL, *, uds: str | None = None, as_json: bool = False, console: Console | None = None
) -> int:
    """Print the roles' health and a few figures; returns 0 if all is well, 1 if not or nothing listens."""
    from rich.console import Console

    where = parse(url, uds)
    try:
        with snapshot.client(where) as http:
            seen = snapshot.look(http, where)
    except NoAnswer as error:
        (console or Console(stderr=True)).print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    console = console or Console(highlight=False)
    if as_json:
        console.out(json.dumps(described(where, seen), indent=2), highlight=False)
    else:
        console.print(roles_table(where, seen), grid(summarize(seen)))
    return 0 if seen.healthy else 1


def described(where: Address, seen: Snapshot) -> dict[str, Any]:
    """All that a snapshot holds, for programs to read."""
    return {"server": str(where), **seen.health, "figures": dict(sorted(seen.figures.items()))}


def roles_table(where: Address, seen: Snapshot) -> Any:
    """One row for each process."""
    from rich.table import Column, Table

    table = Table(
        Column("role", no_wrap=True), "state", "pid", "up", "heartbeat", "restarts", "last death",
        title=f"{where}: {seen.health.get('status')}", show_edge=False, pad_edge=False,
    )  # fmt: skip
    missing = seen.health.get("missing", ())
    for name, role in seen.roles.items():
        table.add_row(name, *_cells(role), style="red" if name in missing else None)
    return table


def _cells(role: Any) -> list[str]:
    age, up, death = role.get("heartbeat_age_seconds"), role.get("uptime_seconds"), role.get("last_death")
    return [
        str(role.get("state")),
        str(role.get("pid", "-")),
        "-" if up is None else duration(up),
        "never" if age is None else f"{age:.1f} s ago",
        str(role.get("restarts")),
        f"{death['cause']}, {duration(death['seconds_ago'])} ago" if death else "-",
    ]


def duration(seconds: float) -> str:
    """In the two units that say most: "3 s", "12 min 5 s", "4 h 10 min", "9 d 3 h"."""
    minutes, s = divmod(int(seconds), 60)
    hours, min_ = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days} d {h} h"
    if hours:
        return f"{h} h {min_} min"
    return f"{minutes} min {s} s" if minutes else f"{s} s"


def grid(lines: list[tuple[str, str]]) -> Any:
    """Two columns."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for line in lines:
        table.add_row(*line)
    return table


def summarize(seen: Snapshot) -> list[tuple[str, str]]:
    """The figures that tell how busy a server is, in words."""
    of = seen.of
    idle, busy = of("device_idle_seconds_total"), of("device_busy_seconds_total")
    cached = share(of("cached_tokens_total"), of("prompt_tokens_total"))
    tokens = f"{of('prompt_tokens_total'):.0f} prompt ({cached} cached)"
    pages = f"{of('kv_pages_owned'):.0f} in use, {of('kv_pages_cached'):.0f} cached, of {of('kv_pages'):.0f}"
    return [
        ("requests", f"{of('requests_running'):.0f} running, {of('requests_waiting'):.0f} waiting"),
        ("KV pages", pages),
        ("tokens", f"{tokens}, {of('generated_tokens_total'):.0f} generated"),
        ("device", f"{share(idle, idle + busy)} idle while there was work"),
        ("one step ahead", f"{share(of('steps_ahead_total'), of('steps_followed_total'))} of steps"),
    ]


def share(part: float, whole: float) -> str:
    """In percent; "-" of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"
