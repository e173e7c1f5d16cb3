"""The frames of the WebSocket `/v1/stream`; `websocket` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
import msgspec.inspect
from msgspec import Meta

from stretto.roles.gateway.answers import id_list, shown
from stretto.roles.gateway.bodies import Count
from stretto.roles.gateway.faults import error_object, refusal, undecodable
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.journal import ID_BYTES
from stretto.roles.gateway.logprobs import finite
from stretto.roles.gateway.reader import choices as choices_at
from stretto.roles.gateway.usage import choices, total, usage_object
from stretto.roles.messages import Alternative, Event, Fault, FinishReason, TokenInfo, Usage

Id = Annotated[str, Meta(min_length=1, max_length=256)]


class Generate(msgspec.Struct, tag="generate", forbid_unknown_fields=True):
    """Client to server: start a request."""

    id: Id
    request: msgspec.Raw
    resumable: bool = False


class Counts(msgspec.Struct):
    """Of OpenAI's usage object, what is counted."""

    prompt_tokens: Count
    completion_tokens: Count
    cached_tokens: Count = 0


class End(msgspec.Struct, forbid_unknown_fields=True):
    """How a choice ended, as its last delta said."""

    choice: Annotated[int, Meta(ge=0)]
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    usage: Counts | None = None


class Resume(msgspec.Struct, tag="resume", forbid_unknown_fields=True):
    """Client to server: go on with a request whose connection was lost."""

    id: Id
    stream: Annotated[str, Meta(max_length=256)]
    request: msgspec.Raw
    tokens: list[Count] = []
    ends: list[End] = []


class Cancel(msgspec.Struct, tag="cancel", forbid_unknown_fields=True):
    """Client to server: end a request."""

    id: Id


class _Named(msgspec.Struct):
    id: Any = None


Frame = Generate | Resume | Cancel

_frame = msgspec.json.Decoder(Frame)
_frame_type = msgspec.inspect.type_info(Frame)
_named = msgspec.json.Decoder(_Named)


class Objection(Exception):
    """A frame is refused; `id` is the request it speaks of, if it does."""

    def __init__(self, id: str | None, fault: Fault) -> None:
        super().__init__(fault.message)
        self.id, self.fault = id, fault


def decode(text: str) -> Frame:
    """Read a client's frame. Raises `Objection`."""
    try:
        return _frame.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        refused = undecodable(error, partial(choices_at, _frame_type), data=text.encode())
        raise Objection(_id_of(text), refused.fault) from None


def _id_of(text: str) -> str | None:
    """The id of a frame that is otherwise wrong."""
    try:
        name = _named.decode(text).id
    except (msgspec.DecodeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def accepted(id: str, stream: str | None, seconds: float) -> dict[str, Any]:
    """The first frame of a request that is to be resumable; None: it is not, the server keeps nothing."""
    return {"type": "accepted", "id": id, "stream": stream, "resume_seconds": seconds}


def delta(id: str, job: Job, position: int, event: Event) -> dict[str, Any]:
    """The next piece of a choice's text; where there are several choices, the last piece says how it ends."""
    frame: dict[str, Any] = {"type": "delta", "id": id, "index": event.index}
    if job.choices > 1:
        frame["choice"] = job.index(position)
    frame |= _told(job, event)
    if job.retain and not job.return_token_ids:
        frame["tokens"] = len(event.token_ids) // ID_BYTES
    if job.choices > 1 and event.finish_reason is not None:
        frame |= {"finish_reason": event.finish_reason, "stop_reason": event.stop_reason}
        if job.retain:
            frame["usage"] = msgspec.to_builtins(_counts(event.usage or Usage(0, 0)))
            if job.return_token_ids:
                frame["prompt_token_ids"] = id_list(event.prompt_ids)
    return frame


def _counts(usage: Usage) -> Counts:
    return Counts(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)


def progress(frame: Resume, job: Job, uid: int) -> tuple[dict[int, int], dict[int, list[Event]]]:
    """By position: tokens the client has of what goes on; the last events of what has ended.

    Raises `Refused`.
    """
    if len(frame.tokens) > job.choices:
        raise refusal(f"tokens: Expected {job.choices} numbers at most, one for each choice.", "tokens")
    positions = job.positions
    told = [] if job.picks else frame.tokens
    told = told + [0] * (len(positions) - len(told))
    ends = {end.choice: end for end in frame.ends if job.stream}
    received, ended = {}, {}
    for choice, (position, count) in enumerate(zip(positions, told, strict=True)):
        if choice in ends:
            ended[position] = [_ended(uid + position, count, ends[choice])]
        else:
            received[position] = count
    return received, ended


def _ended(uid: int, tokens: int, end: End) -> Event:
    """The last event of a choice that the client has whole."""
    counts = end.usage
    usage = (
        None
        if counts is None
        else Usage(counts.prompt_tokens, counts.completion_tokens, counts.cached_tokens)
    )
    return Event(uid, tokens, "", b"", end.finish_reason, end.stop_reason, usage)


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
    frame = {"type": "error", "id": id, "status": fault.status, "error": error_object(fault)}
    return frame if fault.retry_after is None else frame | {"retry_after": fault.retry_after}
