"""Orders to a running server: replace a role's process, or take nothing new and end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stretto.roles.client import snapshot
from stretto.roles.client.address import DEFAULT_URL, parse
from stretto.roles.client.snapshot import NoAnswer, Snapshot

if TYPE_CHECKING:
    import httpx

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 600.0


class Failed(Exception):
    """The server did not do it; the message says why."""


def restart(role: str, url: str = DEFAULT_URL, *, uds: str | None = None, key: str | None = None) -> str:
    """Replace the processes of `role`, e.g. "tokenizer" or "tokenizer.1", one after another, and wait for it.

    Returns what was done, in words. Raises `Failed` or `NoAnswer`.
    """
    where = parse(url, uds)
    with snapshot.client(where) as http:
        before = snapshot.look(http, where)
        old = {
            name: facts["pid"] for name, facts in before.roles.items() if role in (name, name.split(".")[0])
        }
        began = time.monotonic()
        _order(http, f"/restart/{role}", key)
        while time.monotonic() - began < PATIENCE_SECONDS:
            time.sleep(LOOK_SECONDS)
            try:
                seen = snapshot.look(http, where)
            except NoAnswer:  # a connection to a gateway that goes
                continue
            if seen.healthy and not set(old.values()) & _pids(seen):
                return f"replaced {', '.join(old)} in {time.monotonic() - began:.1f} s"
    raise Failed(f"{role} is not replaced after {PATIENCE_SECONDS:.0f} s; see `stretto status`")


def _pids(seen: Snapshot) -> set[int]:
    return {facts["pid"] for facts in seen.roles.values() if facts["state"] != "retiring"}


def drain(url: str = DEFAULT_URL, *, uds: str | None = None, key: str | None = None) -> str:
    """Have the server finish what it has, and end; returns at once. Raises `Failed` or `NoAnswer`."""
    where = parse(url, uds)
    with snapshot.client(where) as http:
        live = snapshot.look(http, where).of("requests_live")
        _order(http, "/drain", key)
    return f"the server takes nothing new, finishes {live:.0f} request{'' if live == 1 else 's'} and ends"


def _order(http: httpx.Client, path: str, key: str | None) -> None:
    answer = http.post(path, headers={"Authorization": f"Bearer {key}"} if key else {})
    if answer.is_error:
        raise Failed(f"the server refused: {answer.status_code} {_reason(answer)}")


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.reason_phrase
