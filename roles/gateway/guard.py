"""Who may go where: the API key for the API, the admin key for what changes the server."""

from __future__ import annotations

import hmac
import ipaddress

from stretto.roles.config import Config
from stretto.roles.gateway import http
from stretto.roles.gateway.anthropic_answers import error_json as anthropic_error
from stretto.roles.gateway.faults import error_json, refusal
from stretto.roles.gateway.pages import OPEN_PATHS
from stretto.roles.messages import Fault

ADMIN_PATHS = frozenset({"/start_profile", "/stop_profile", "/flush_cache", "/drain"})
RESTART = "/restart/"

_UNAUTHORIZED = refusal(
    "The API key is missing or wrong; send it as 'Authorization: Bearer KEY', or x-api-key to /v1/messages.",
    code="invalid_api_key",
    status=401,
).fault
_ADMINS_ONLY = refusal(
    "This needs the admin key, as 'Authorization: Bearer KEY'.", code="invalid_admin_key", status=401
).fault
_LOCALS_ONLY = refusal(
    "Without --admin-key this is allowed from the server's own machine only, and to no web page.",
    code="forbidden",
    status=403,
).fault


class Guard:
    """Lets nobody past without the key that a path wants; `OPEN_PATHS` want none.

    Paths that change the server want the admin key; where there is none, the API key; where there is none
    either, that the client is on this machine and is no web page, which any site may have opened there.
    """

    def __init__(self, app: http.App, config: Config) -> None:
        self.app = app
        self._key, self._admin_key = config.api_key.encode(), config.admin_key.encode()

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        fault = self._objection(scope)
        if fault is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await deny_handshake(receive, send, fault)
        else:
            await http.answer(send, fault.status, error_of(scope["path"])(fault))

    def _objection(self, scope: http.Scope) -> Fault | None:
        """Why not; compares in a time that tells nothing about how much of a key is right."""
        path = scope["path"]
        if path in OPEN_PATHS:
            return None
        if path in ADMIN_PATHS or path.startswith(RESTART):
            if self._admin_key:
                return None if _shows(scope, self._admin_key) else _ADMINS_ONLY
            if not self._key:
                return None if _is_local(scope) and not _is_page(scope) else _LOCALS_ONLY
        return None if not self._key or _shows(scope, self._key) else _UNAUTHORIZED


def _shows(scope: http.Scope, key: bytes) -> bool:
    scheme, _, shown = (http.header(scope, b"authorization") or b"").partition(b" ")
    if _is_anthropics(scope["path"]) and (other := http.header(scope, b"x-api-key")) is not None:
        scheme, shown = b"bearer", other
    return hmac.compare_digest(shown.strip(), key) and scheme.lower() == b"bearer"


def _is_local(scope: http.Scope) -> bool:
    """A client of a Unix socket has no address."""
    client = scope.get("client")
    if not client or not client[0]:
        return True
    return ipaddress.ip_address(client[0].partition("%")[0]).is_loopback


def _is_page(scope: http.Scope) -> bool:
    """Browsers name the origin of a page with whatever it posts."""
    return http.header(scope, b"origin") is not None


def _is_anthropics(path: str) -> bool:
    return path.startswith("/v1/messages")


def error_of(path: str) -> http.ErrorBody:
    """What writes an error in the form of the API that a path belongs to."""
    return anthropic_error if _is_anthropics(path) else error_json


async def deny_handshake(receive: http.Receive, send: http.Send, fault: Fault) -> None:
    """Answer a WebSocket handshake with an HTTP error."""
    await receive()
    headers = [(b"content-type", b"application/json")]
    if fault.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "websocket.http.response.start", "status": fault.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": error_json(fault)})
