"""The frames of the WebSocket `/v1/stream`; `websocket` says what they mean."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stretto.roles.gateway.answers import id_list, usage_object
from stretto.roles.gateway.faults import error_object, undecodable
from stretto.roles.gateway.intake import Job
from stretto.roles.messages import Event, Fault

Id = Annotated[str, Meta(min_length=1, max_length=256)]


class Generate(msgspec.Struct, tag="generate", forbid_unknown_fields=True):
    """Client to server: start a request."""

    id: Id
    request: msgspec.Raw


class Cancel(msgspec.Struct, tag="cancel", forbid_unknown_fields=True):
    """Client to server: end a request."""

    id: Id


class _Named(msgspec.Struct):
    id: Any = None


_frame = msgspec.json.Decoder(Generate | Cancel)
_named = msgspec.json.Decoder(_Named)


class Objection(Exception):
    """A frame is refused; `id` is the request it speaks of, if it does."""

    def __init__(self, id: str | None, fault: Fault) -> None:
        super().__init__(fault.message)
        self.id, self.fault = id, fault


def decode(text: str) -> Generate | Cancel:
    """Read a client's frame. Raises `Objection`."""
    try:
        return _frame.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Objection(_id_of(text), undecodable(error).fault) from None


def _id_of(text: str) -> str | None:
    """The id of a frame that is otherwise wrong."""
    try:
        name = _named.decode(text).id
    except (msgspec.DecodeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def delta(id: str, job: Job, event: Event) -> dict[str, Any]:
    """The next piece of text."""
    frame: dict[str, Any] = {"type": "delta", "id": id, "index": 0, "text": event.text}
    if job.return_token_ids:
        frame["token_ids"] = id_list(event.token_ids)
    return frame


def ending(id: str, job: Job, event: Event) -> dict[str, Any]:
    """The last frame of a request, from its terminal event: `done`, or `error`."""
    return _done(id, job, event) if event.fault is None else error(id, event.fault)


def _done(id: str, job: Job, event: Event) -> dict[str, Any]:
    frame: dict[str, Any] = {
        "type": "done",
        "id": id,
        "finish_reason": event.finish_reason,
        "stop_reason": event.stop_reason,
        "usage": usage_object(event.usage),
    }
    if not job.stream:
        frame["text"] = event.text
        if job.return_token_ids:
            frame["token_ids"] = id_list(event.token_ids)
    if job.return_token_ids:
        frame["prompt_token_ids"] = id_list(event.prompt_ids)
    return frame


def error(id: str | None, fault: Fault) -> dict[str, Any]:
    """The end of a request, or the refusal of a frame."""
    return {"type": "error", "id": id, "status": fault.status, "error": error_object(fault)}
