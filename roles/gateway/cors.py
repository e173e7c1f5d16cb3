"""Which web pages of other origins may use the server; see https://fetch.spec.whatwg.org/#http-cors-protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.middleware.cors import CORSMiddleware

from stretto.roles.gateway import http
from stretto.roles.gateway.faults import refusal
from stretto.roles.gateway.guard import deny_handshake

EXPOSED = ("retry-after", "x-request-id", "x-should-retry")
"""Headers of answers that a page may read besides those that every page may."""
_EXPOSED_BYTES = ", ".join(EXPOSED).encode()

_REFUSED = refusal(
    "Pages of this origin may not use the server; --allowed-origins names those that may.",
    code="origin_not_allowed",
    status=403,
).fault


class Cors:
    """Answers preflights, tells browsers which pages may read an answer, and refuses WebSockets of others.

    It stands before the keys: a preflight never has one, and a page is to read why its key was refused.
    Whoever sends no `Origin` is no page, and goes past.
    """

    def __init__(self, app: http.App, allowed: Sequence[str]) -> None:
        self._app = app
        self._http = CORSMiddleware(
            app, allowed, allow_methods=("*",), allow_headers=("*",), expose_headers=EXPOSED
        )

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        if scope["type"] != "websocket":
            await self._http(scope, receive, send)
        elif self._may_talk(scope):
            await self._app(scope, receive, send)
        else:
            await deny_handshake(receive, send, _REFUSED)

    def _may_talk(self, scope: http.Scope) -> bool:
        """Browsers open WebSockets to anywhere, and leave it to the server to look at who asks."""
        origin = http.header(scope, b"origin")
        return origin is None or self._http.is_allowed_origin(origin.decode("latin-1"))


def granted(allowed: Iterable[str], headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What lets a page read an answer that is made without `Cors`.

    headers: of the request, as far as they have come; without an `Origin` among them only `*` helps.
    """
    origins, asking = set(allowed), dict(headers).get(b"origin", b"")
    origin = b"*" if "*" in origins else asking
    if origin.decode("latin-1") not in origins:
        return []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED_BYTES),
        (b"vary", b"Origin"),
    ]
