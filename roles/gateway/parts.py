"""What every endpoint is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stretto.roles.config import Config
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.intake import Intake
from stretto.roles.gateway.profiler import Profiler
from stretto.roles.gateway.sessions import Sessions
from stretto.roles.messages import ToSupervisor
from stretto.roles.metrics import Meter
from stretto.shm.board import Board


class Parts(NamedTuple):
    """Handed to each module's `routes`, which returns its part of the route table."""

    config: Config
    door: Door
    intake: Intake
    meter: Meter
    board: Board
    profiler: Profiler
    sessions: Sessions
    tell: Callable[[ToSupervisor], None]
    """Sends a control message."""
