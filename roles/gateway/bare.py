"""Answers made without the application, for what never gets there: heads too large or too slow, no HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from stretto.roles.gateway.cors import granted
from stretto.roles.gateway.faults import error_json
from stretto.roles.gateway.http import retry_headers
from stretto.roles.messages import Fault

_PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large",
            503: "Service Unavailable"}  # fmt: skip


def bare_answer(fault: Fault, headers: Iterable[tuple[bytes, bytes]], allowed: Iterable[str]) -> bytes:
    """Head and body of an answer after which the connection closes.

    headers: the request's, as far as they have come. allowed: the origins whose pages may read it.
    """
    body = error_json(fault)
    head = [
        (b"content-type", b"application/json"),
        (b"x-request-id", f"req-{secrets.token_hex(8)}".encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *retry_headers(fault),
        *granted(allowed, headers),
    ]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in head)
    return f"HTTP/1.1 {fault.status} {_PHRASES[fault.status]}\r\n".encode() + lines + b"\r\n" + body
