"""What callers of this package see when a server refuses a request, or cannot be reached."""

from __future__ import annotations

from typing import Any


class StrettoError(Exception):
    """A request that failed, in the terms of OpenAI's error object.

    `status` is the HTTP status that fits, None where the server did not say.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str = "server_error",
        code: str | int | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.code = code
        self.param = param

    def at(self, place: str) -> StrettoError:
        """The same error, told of `place`, e.g. "prompt 3"."""
        return StrettoError(
            f"{place}: {self.message}", status=self.status, type=self.type, code=self.code, param=self.param
        )


class ConnectionFailed(StrettoError):
    """No answer, for reasons beyond the request: nothing listens, the connection was lost or closed.

    `code` is "cannot_connect", "connection_lost", "request_too_large" (this or another of them),
    "timeout", "protocol", "client_closed" or "server_died".
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message, type="connection_error", code=code)


def invalid(message: str) -> StrettoError:
    """A request that need not be sent to know that it is wrong."""
    return StrettoError(message, status=400, type="invalid_request_error")


def from_object(fields: Any, status: int | None, fallback: str) -> StrettoError:
    """Read OpenAI's error object; `fallback` is the message where there is none."""
    fields = fields if isinstance(fields, dict) else {}
    return StrettoError(
        str(fields.get("message", fallback)),
        status=status,
        type=str(fields.get("type", "server_error")),
        code=fields.get("code"),
        param=fields.get("param"),
    )
