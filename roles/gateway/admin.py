"""Endpoints that change the server, beside the profiles: drain it, replace its processes.

They want the admin key; `guard` says what does where there is none.
"""

from __future__ import annotations

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stretto.roles.gateway.faults import error_json, refusal
from stretto.roles.gateway.parts import Parts
from stretto.roles.messages import Drain, Restart


def routes(parts: Parts) -> list[BaseRoute]:
    """Both. Neither looks at its body; what becomes of the order, `/health` tells."""
    names = set(parts.board.names)

    async def drain(request: Request) -> Response:
        parts.tell(Drain())
        return _given("draining")

    async def restart(request: Request) -> Response:
        order = _order(request.path_params["role"], names)
        if order is None:
            roles = ", ".join(sorted({name.partition(".")[0] for name in names}))
            fault = refusal(f"There is no such role; these are: {roles}.", status=404).fault
            return Response(error_json(fault), fault.status, media_type="application/json")
        parts.tell(order)
        return _given("restarting")

    return [
        Route("/drain", drain, methods=["POST"]),
        Route("/restart/{role}", restart, methods=["POST"]),
    ]


def _order(name: str, names: set[str]) -> Restart | None:
    """What "executor" or "executor.0" asks for; None where there is no such process."""
    role, _, index = name.partition(".")
    if name in names:
        return Restart(role, int(index))
    return Restart(role) if any(one.startswith(f"{name}.") for one in names) else None


def _given(status: str) -> Response:
    return Response(orjson.dumps({"status": status}), media_type="application/json")
