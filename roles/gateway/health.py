"""Whether every role is there and alive, read from the board that they all share."""

from __future__ import annotations

import time
from typing import Any

from stretto.shm.board import DIED, HEARTBEAT, PID, RESTARTS, STARTED, Board, State


def health(board: Board, heartbeat_timeout: float) -> tuple[int, dict[str, Any]]:
    """HTTP status and body of `/health`: 200 if all is well, else 503 and `missing`, what is not.

    A role is well if the supervisor holds it for ready and its own loop gave a heartbeat (once a second)
    within the last `heartbeat_timeout` seconds. A server that drains is not well: it takes no new requests.
    """
    now = time.monotonic()
    roles, missing = {}, []
    for name in board.names:
        state, row = board.state(name), board.row(name)
        if state is State.DOWN:
            continue  # a spare place
        age = now - row[HEARTBEAT] if row[HEARTBEAT] else None
        roles[name] = {
            "state": state.name.lower(),
            "heartbeat_age_seconds": None if age is None else round(age, 3),
            "restarts": int(row[RESTARTS]),
            "pid": int(row[PID]),
            "uptime_seconds": round(now - row[STARTED], 3),
            "last_death": _last_death(board, name, now),
        }
        if state is State.RETIRING:
            continue  # its successor is well, or missing itself
        if state is not State.READY or age is None or age > heartbeat_timeout:
            missing.append(name)
    if board.draining:
        return 503, {"status": "draining", "missing": missing, "roles": roles}
    if missing:
        return 503, {"status": "unavailable", "missing": missing, "roles": roles}
    return 200, {"status": "ok", "roles": roles}


def _last_death(board: Board, name: str, now: float) -> dict[str, Any] | None:
    """How the process before this one ended, and when; None where none has died."""
    died = board.row(name)[DIED]
    return {"cause": board.note(name), "seconds_ago": round(now - died, 3)} if died else None
