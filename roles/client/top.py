"""A server's roles and rates, live in the terminal, until Ctrl-C."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any

from stretto.roles.client import snapshot
from stretto.roles.client.address import DEFAULT_URL, Address, parse
from stretto.roles.client.snapshot import NoAnswer, Snapshot
from stretto.roles.client.status import grid, roles_table, share, summarize

if TYPE_CHECKING:
    from rich.console import Console


def top(
    url: str = DEFAULT_URL,
    *,
    uds: str | None = None,
    interval: float = 1.0,
    looks: int | None = None,
    console: Console | None = None,
) -> int:
    """Show a server, every `interval` seconds, `looks` times or for ever; 1 when it does not answer at first.

    A server that stops answering later, while its gateway is started again, is shown so until it is back.
    """
    from rich.console import Console
    from rich.live import Live

    where = parse(url, uds)
    with snapshot.client(where) as http:
        try:
            before = snapshot.look(http, where)
        except NoAnswer as error:
            (console or Console()).print(str(error), markup=False)
            return 1
        with Live(view(where, before, before), console=console, auto_refresh=False, screen=True) as live:
            for _ in count() if looks is None else range(looks):
                live.refresh()
                time.sleep(interval)
                try:
                    seen = snapshot.look(http, where)
                    live.update(view(where, before, seen))
                    before = seen
                except NoAnswer as error:
                    live.update(str(error))
    return 0


def view(where: Address, before: Snapshot, seen: Snapshot) -> Any:
    """The roles, the rates since `before`, and the figures so far."""
    from rich.console import Group

    return Group(roles_table(where, seen), grid(rates(before, seen) + summarize(seen)))


def rates(before: Snapshot, seen: Snapshot) -> list[tuple[str, str]]:
    """What happened between two looks, per second."""

    def gained(name: str) -> float:
        return seen.of(name) - before.of(name)

    seconds = (seen.at - before.at) or 1.0
    idle, busy = gained("device_idle_seconds_total"), gained("device_busy_seconds_total")
    return [
        ("now", f"{gained('generated_tokens_total') / seconds:.1f} tokens/s generated, "
                f"{gained('prompt_tokens_total') / seconds:.1f} tokens/s of prompts, "
                f"{gained('requests_total') / seconds:.1f} requests/s"),
        ("", f"device busy {share(busy, seconds)}, idle {share(idle, seconds)} while there was work"),
    ]  # fmt: skip
