"""The wire format of Anthropic's Messages API: messages, their server-sent events, and errors."""

from __future__ import annotations

import secrets
from typing import Any

import orjson

from stretto.roles.gateway.http import event as sse
from stretto.roles.messages import Event, Fault, Usage

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_object(fault: Fault) -> dict[str, Any]:
    """What stands in an error answer beside `"type": "error"`."""
    kind = _ERROR_TYPES.get(fault.status, "api_error" if fault.status >= 500 else "invalid_request_error")
    return {"error": {"type": kind, "message": fault.message}, "request_id": None}


def error_json(fault: Fault) -> bytes:
    """The JSON body of an error answer."""
    return orjson.dumps({"type": "error", **error_object(fault)})


def usage_object(usage: Usage | None) -> dict[str, int]:
    """Anthropic counts cached tokens apart from `input_tokens`. None: nothing is known yet."""
    usage = usage or Usage(0, 0)
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def stop_of(event: Event) -> dict[str, str | None]:
    """Why the message ended. One that was aborted may be sent back to be continued: `pause_turn`."""
    if event.finish_reason == "stop" and isinstance(event.stop_reason, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": event.stop_reason}
    reasons = {"stop": "end_turn", "length": "max_tokens", "abort": "pause_turn"}
    return {"stop_reason": reasons[event.finish_reason or "stop"], "stop_sequence": None}


class MessageAnswer:
    """Encodes the answer to one request."""

    def __init__(self, model: str) -> None:
        self._head = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    def whole(self, event: Event) -> bytes:
        """The JSON body of an answer that is not streamed; `event` says all."""
        content = [{"type": "text", "text": event.text}]
        usage = usage_object(event.usage)
        return orjson.dumps({**self._head, "content": content, **stop_of(event), "usage": usage})

    def opening(self, events: list[Event]) -> bytes:
        """What comes before the first events. A prompt whose length they do not tell counts 0."""
        nothing: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        message = {**self._head, **nothing, "usage": usage_object(events[0].usage)}
        return (
            sse("message_start", {"message": message})
            + sse("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})
            + sse("ping", {})
        )

    def event(self, event: Event) -> bytes:
        """Server-sent events for one event of the request; a terminal one ends the stream."""
        out = b""
        if event.text:
            out = sse(
                "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": event.text}}
            )
        if event.finish_reason is None:
            return out
        if event.fault is not None:
            return out + sse("error", error_object(event.fault))
        return out + (
            sse("content_block_stop", {"index": 0})
            + sse("message_delta", {"delta": stop_of(event), "usage": usage_object(event.usage)})
            + sse("message_stop", {})
        )
