"""Whether every role is there and alive, read from the board that they all share."""

from __future__ import annotations

import time
from typing import Any

from stretto.shm.board import HEARTBEAT, RESTARTS, Board, State


def health(board: Board, heartbeat_timeout: float) -> tuple[int, dict[str, Any]]:
    """HTTP status and body of `/health`: 200 if all is well, else 503 and `missing`, what is not.

    A role is well if the supervisor holds it for ready and its own loop gave a heartbeat (once a second)
    within the last `heartbeat_timeout` seconds.
    """
    now = time.monotonic()
    roles, missing = {}, []
    for name in board.names:
        state, row = board.state(name), board.row(name)
        age = now - row[HEARTBEAT] if row[HEARTBEAT] else None
        roles[name] = {
            "state": state.name.lower(),
            "heartbeat_age_seconds": None if age is None else round(age, 3),
            "restarts": int(row[RESTARTS]),
        }
        if state is not State.READY or age is None or age > heartbeat_timeout:
            missing.append(name)
    if missing:
        return 503, {"status": "unavailable", "missing": missing, "roles": roles}
    return 200, {"status": "ok", "roles": roles}
