"""The wire format of OpenAI's Responses API: the response object, and the events of its stream."""

from __future__ import annotations

import secrets
import time
from typing import Any

from stretto.roles.gateway.http import event as sse
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.logprobs import ChatLogprobs
from stretto.roles.gateway.responses_bodies import ResponsesBody, wants_logprobs
from stretto.roles.messages import Event, Fault, Usage

_STATUS = {"stop": "completed", "length": "incomplete", "abort": "cancelled", "error": "failed"}
_ENDINGS = {
    "completed": "completed",
    "incomplete": "incomplete",
    "cancelled": "incomplete",
    "failed": "failed",
}
"""The last event of a stream, `response.` before it; there is none for a cancellation."""


class ResponseAnswer:
    """One response on its way, as an object and as a stream.

    A stream's events are numbered from 0, and each is a bytes object of its own.
    """

    def __init__(self, id: str, body: ResponsesBody, job: Job, model: str) -> None:
        self._body, self._id, self._model = body, id, model
        self._created, self._item = time.time(), f"msg_{secrets.token_hex(16)}"
        self._status, self._number = "queued", 0
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._form = ChatLogprobs(job) if wants_logprobs(body) else None
        self._usage: Usage | None = None
        self._fault: Fault | None = None
        self._completed: float | None = None

    @property
    def text(self) -> str:
        """So far."""
        return "".join(self._texts)

    @property
    def status(self) -> str:
        """OpenAI's word."""
        return self._status

    def object(self) -> dict[str, Any]:
        """The response as it is now."""
        body, incomplete = self._body, self._status == "incomplete"
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": self._completed,
            "status": self._status,
            "background": bool(body.background),
            "error": None if self._fault is None else _error(self._fault),
            "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": None,
            "metadata": body.metadata or {},
            "model": self._model,
            "output": [self._message()] if self._texts or self._usage else [],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "prompt_cache_key": body.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": body.safety_identifier,
            "service_tier": "default",
            "store": body.store is not False,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": [],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": "disabled",
            "usage": None if self._usage is None else _usage_object(self._usage),
            "user": body.user,
        }

    def add(self, event: Event) -> None:
        """Take in an event of the request."""
        self._status = _STATUS[event.finish_reason] if event.finish_reason else "in_progress"
        if event.text:
            self._texts.append(event.text)
        if self._form is not None:
            self._logprobs += self._form.form(event)["content"]
        self._usage, self._fault = event.usage or self._usage, event.fault
        if self._status == "completed":
            self._completed = time.time()

    def opening(self, events: list[Event]) -> bytes:
        """The stream's first events, in one piece."""
        return b"".join(self.first_events())

    def event(self, event: Event) -> bytes:
        """The stream's events for an event of the request, in one piece."""
        return b"".join(self.next_events(event))

    def first_events(self) -> list[bytes]:
        """How a stream begins."""
        self._status = "in_progress"
        return [
            self._event("created", response=self.object()),
            self._event("in_progress", response=self.object()),
            self._event("output_item.added", output_index=0, item=self._message(empty=True)),
            self._event("content_part.added", **self._place(), part=_part("", [])),
        ]

    def next_events(self, event: Event) -> list[bytes]:
        """Takes in an event of the request; the stream's events for it. A terminal one ends the stream."""
        known = len(self._logprobs)
        self.add(event)
        out = []
        if event.text:
            news = self._logprobs[known:]
            out.append(self._event("output_text.delta", **self._place(), delta=event.text, logprobs=news))
        return out + (self._closing() if event.finish_reason else [])

    def _closing(self) -> list[bytes]:
        end = self._event
        if self._fault is not None:
            return [end("failed", response=self.object())]
        text, logprobs = self.text, self._logprobs
        return [
            end("output_text.done", **self._place(), text=text, logprobs=logprobs),
            end("content_part.done", **self._place(), part=_part(text, logprobs)),
            end("output_item.done", output_index=0, item=self._message()),
            end(_ENDINGS[self._status], response=self.object()),
        ]

    def _event(self, name: str, **fields: Any) -> bytes:
        self._number += 1
        return sse(f"response.{name}", {"sequence_number": self._number - 1, **fields})

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item, "output_index": 0, "content_index": 0}

    def _message(self, empty: bool = False) -> dict[str, Any]:
        status = self._status if self._status in ("in_progress", "completed") else "incomplete"
        content = [] if empty else [_part(self.text, self._logprobs)]
        message = {"id": self._item, "type": "message", "status": status}
        return message | {"role": "assistant", "content": content}


def _part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _error(fault: Fault) -> dict[str, str]:
    """OpenAI's error of a response that failed, which knows other codes than an answer's error."""
    if fault.status == 429:
        return {"code": "rate_limit_exceeded", "message": fault.message}
    return {"code": "invalid_prompt" if fault.status < 500 else "server_error", "message": fault.message}
