"""A server's roles and rates, until Ctrl-C: live in the terminal, or row by row where the output is none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from stretto.roles.client import snapshot
from stretto.roles.client.address import DEFAULT_URL, Address, parse
from stretto.roles.client.snapshot import NoAnswer, Snapshot
from stretto.roles.client.status import grid, roles_table, share, summarize

if TYPE_CHECKING:
    import httpx
    from rich.console import Console

COLUMNS = ("time", "status", "running", "waiting", "tok/s", "prompt/s", "req/s", "busy", "idle", "KV")
"""Of a row: busy and idle are the device's, idle while there was work; KV is the pages that are in use."""


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

    where = parse(url, uds)
    with snapshot.client(where) as http:
        try:
            before = snapshot.look(http, where)
        except NoAnswer as error:
            (console or Console(stderr=True)).print(str(error), markup=False, soft_wrap=True)
            return 1
        console = console or Console()
        show = _live if console.is_terminal else _rows
        show(console, where, before, _watch(http, where, before, interval, looks))
    return 0


Look = tuple[Snapshot, Snapshot | NoAnswer]
"""What was seen, after what was seen before it; or why nothing was."""


def _watch(
    http: httpx.Client, where: Address, before: Snapshot, interval: float, looks: int | None
) -> Iterator[Look]:
    for _ in count() if looks is None else range(looks):
        time.sleep(interval)
        try:
            seen = snapshot.look(http, where)
        except NoAnswer as error:
            yield before, error
        else:
            yield before, seen
            before = seen


def _live(console: Console, where: Address, first: Snapshot, looks: Iterator[Look]) -> None:
    from rich.live import Live

    with Live(view(where, first, first), console=console, auto_refresh=False, screen=True) as live:
        live.refresh()
        for before, seen in looks:
            shown = str(seen) if isinstance(seen, NoAnswer) else view(where, before, seen)
            live.update(shown, refresh=True)


def _rows(console: Console, where: Address, first: Snapshot, looks: Iterator[Look]) -> None:
    """As programs and files want it: a row for each look, written at once."""
    print(_spaced(*COLUMNS), file=console.file, flush=True)
    for before, seen in looks:
        cells = ("unreachable",) if isinstance(seen, NoAnswer) else row(before, seen)
        print(_spaced(time.strftime("%H:%M:%S"), *cells), file=console.file, flush=True)


def _spaced(moment: str, status: str, *numbers: str) -> str:
    return f"{moment:<8}  {status:<11}" + "".join(f"{number:>9}" for number in numbers)


def row(before: Snapshot, seen: Snapshot) -> tuple[str, ...]:
    """The `COLUMNS` after the time, none with a space in it; rates are per second since `before`."""
    seconds = (seen.at - before.at) or 1.0
    of, gained = seen.of, seen.since(before)
    counted = ("generated_tokens_total", "prompt_tokens_total", "requests_total")
    shares = [
        *(share(gained(f"device_{name}_seconds_total"), seconds) for name in ("busy", "idle")),
        share(of("kv_pages_owned"), of("kv_pages")),
    ]
    return (
        str(seen.health.get("status")),
        *(f"{of(f'requests_{name}'):.0f}" for name in ("running", "waiting")),
        *(f"{gained(name) / seconds:.1f}" for name in counted),
        *(words.replace(" ", "") for words in shares),
    )


def view(where: Address, before: Snapshot, seen: Snapshot) -> Any:
    """The roles, the rates since `before`, and the figures so far."""
    from rich.console import Group

    return Group(roles_table(where, seen), grid(rates(before, seen) + summarize(seen)))


def rates(before: Snapshot, seen: Snapshot) -> list[tuple[str, str]]:
    """What happened between two looks, per second."""
    gained, seconds = seen.since(before), (seen.at - before.at) or 1.0
    idle, busy = gained("device_idle_seconds_total"), gained("device_busy_seconds_total")
    return [
        ("now", f"{gained('generated_tokens_total') / seconds:.1f} tokens/s generated, "
                f"{gained('prompt_tokens_total') / seconds:.1f} tokens/s of prompts, "
                f"{gained('requests_total') / seconds:.1f} requests/s"),
        ("", f"device busy {share(busy, seconds)}, idle {share(idle, seconds)} while there was work"),
    ]  # fmt: skip
