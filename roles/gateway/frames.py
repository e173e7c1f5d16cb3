"""The frames of the WebSocket `/v1/stream`; `websocket` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stretto.roles.gateway.answers import id_list, shown
from stretto.roles.gateway.faults import error_object, undecodable
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.logprobs import finite
from stretto.roles.gateway.usage import choices, total, usage_object
from stretto.roles.messages import Alternative, Event, Fault, TokenInfo

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


def delta(id: str, job: Job, position: int, event: Event) -> dict[str, Any]:
    """The next piece of a choice's text; where there are several choices, the last piece says how it ends."""
    frame: dict[str, Any] = {"type": "delta", "id": id, "index": event.index}
    if job.choices > 1:
        frame["choice"] = job.index(position)
    frame |= _told(job, event)
    if job.choices > 1 and event.finish_reason is not None:
        frame |= {"finish_reason": event.finish_reason, "stop_reason": event.stop_reason}
    return frame


def done(id: str, job: Job, events: Mapping[int, Event]) -> dict[str, Any]:
    """The last frame of a request, from its terminal events by position, or its only ones."""
    ends = [_end(job, event) for event in choices(job, events)]
    frame = {"type": "done", "id": id, "usage": usage_object(total(job, events))}
    if job.choices == 1:
        return frame | ends[0]
    return frame | {"choices": [{"choice": i, **end} for i, end in enumerate(ends)]}


def _end(job: Job, event: Event) -> dict[str, Any]:
    end: dict[str, Any] = {"finish_reason": event.finish_reason, "stop_reason": event.stop_reason}
    if not job.stream:
        end |= _told(job, event)
    if job.return_token_ids:
        end["prompt_token_ids"] = id_list(event.prompt_ids)
    return end


def _told(job: Job, event: Event) -> dict[str, Any]:
    """Text, and what else the request asked for about it."""
    told: dict[str, Any] = {"text": shown(event)}
    if job.return_token_ids:
        told["token_ids"] = id_list(event.token_ids)
    if job.params.logprobs is not None:
        told["logprobs"] = [_token(info, job.params.logprobs) for info in event.logprobs]
    if job.params.prompt_logprobs is not None and event.prompt_logprobs is not None:
        told["prompt_logprobs"] = [
            None if info is None else _token(info, job.params.prompt_logprobs)
            for info in event.prompt_logprobs
        ]
    return told


def _token(info: TokenInfo, top: int) -> dict[str, Any]:
    return {**_named_token(info), "rank": info.rank, "top": [_named_token(other) for other in info.top[:top]]}


def _named_token(token: Alternative | TokenInfo) -> dict[str, Any]:
    return {
        "id": token.id,
        "token": token.token,
        "bytes": list(token.raw),
        "logprob": finite(token.logprob),
    }


def error(id: str | None, fault: Fault) -> dict[str, Any]:
    """The end of a request, or the refusal of a frame."""
    return {"type": "error", "id": id, "status": fault.status, "error": error_object(fault)}
