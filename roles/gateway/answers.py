"""The wire format of answers: OpenAI's, to the letter, with vLLM's extensions where a client asks for them.

Whole answers are encoded once per request. Streams are server-sent events, one bytes object per event: all
that does not change within a request is encoded once, and an event is put together by concatenation.
"""

from __future__ import annotations

import time
from array import array
from typing import Any, ClassVar

import orjson

from stretto.roles.gateway.faults import error_json
from stretto.roles.gateway.intake import Job
from stretto.roles.messages import Event, Usage

DONE = b"data: [DONE]\n\n"


def usage_object(usage: Usage | None) -> dict[str, Any] | None:
    """OpenAI's usage object."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def id_list(ids: bytes) -> list[int]:
    """Token ids, int32 bytes, as a list."""
    return array("i", ids).tolist()


class Answer:
    """Encodes the answer to one request. Subclasses say what is particular to their API."""

    name: ClassVar[str]
    """Of the object when it is whole."""
    chunk_name: ClassVar[str]
    """Of the object in a stream."""
    id_prefix: ClassVar[str]

    def __init__(self, job: Job, uid: int, model: str) -> None:
        self._ids, self._include_usage = job.return_token_ids, job.include_usage
        self._id = f"{self.id_prefix}-{uid:016x}"
        self._created, self._model = int(time.time()), model
        shared = self._head(self.chunk_name) | ({"usage": None} if self._include_usage else {})
        self._prefix = b"data: " + orjson.dumps(shared)[:-1] + b',"choices":[{"index":0,'

    def _head(self, name: str) -> dict[str, Any]:
        return {"id": self._id, "object": name, "created": self._created, "model": self._model}

    # The whole answer.

    def whole(self, event: Event) -> bytes:
        """The JSON body for a request that is not streamed; `event` is its only one."""
        choice: dict[str, Any] = {"index": 0, **self.content(event.text), "logprobs": None}
        choice |= {"finish_reason": event.finish_reason, "stop_reason": event.stop_reason}
        body = self._head(self.name) | {"choices": [choice], "usage": usage_object(event.usage)}
        if self._ids:
            choice["token_ids"] = id_list(event.token_ids)
            self.prompt_ids_home(body, choice)["prompt_token_ids"] = id_list(event.prompt_ids)
        return orjson.dumps(body)

    # The stream.

    def opening(self) -> bytes:
        """What comes before the first event."""
        raise NotImplementedError

    def event(self, event: Event) -> bytes:
        """Server-sent events for one event of the request; a terminal one ends the stream.

        An error ends it without [DONE], so that no client takes a broken answer for a whole one.
        """
        out = b""
        if event.text or (self._ids and event.token_ids):
            out = self.delta(event)
        if event.finish_reason is None:
            return out
        if event.fault is not None:
            return out + b"data: " + error_json(event.fault) + b"\n\n"
        return out + self._ending(event)

    def _chunk(self, choice: bytes, ids: bytes = b"") -> bytes:
        if self._ids and ids:
            choice += b',"token_ids":' + orjson.dumps(id_list(ids))
        return self._prefix + choice + b"}]}\n\n"

    def _ending(self, event: Event) -> bytes:
        choice: dict[str, Any] = {"index": 0, **self.no_content(), "logprobs": None}
        choice |= {"finish_reason": event.finish_reason, "stop_reason": event.stop_reason}
        body = self._head(self.chunk_name) | {"choices": [choice]}
        if self._ids:
            self.prompt_ids_home(body, choice)["prompt_token_ids"] = id_list(event.prompt_ids)
        if not self._include_usage:
            return b"data: " + orjson.dumps(body) + b"\n\n" + DONE
        usage = self._head(self.chunk_name) | {"choices": [], "usage": usage_object(event.usage)}
        chunks = orjson.dumps(body | {"usage": None}), orjson.dumps(usage)
        return b"".join(b"data: " + chunk + b"\n\n" for chunk in chunks) + DONE

    # What differs between the APIs.

    def content(self, text: str) -> dict[str, Any]:
        """The part of a whole choice that holds the text."""
        raise NotImplementedError

    def no_content(self) -> dict[str, Any]:
        """The same part of a stream's terminal choice."""
        raise NotImplementedError

    def delta(self, event: Event) -> bytes:
        """A chunk with the event's text."""
        raise NotImplementedError

    @staticmethod
    def prompt_ids_home(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        """Which of the two carries `prompt_token_ids`."""
        raise NotImplementedError


class ChatAnswer(Answer):
    """`/v1/chat/completions`."""

    name, chunk_name, id_prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def opening(self) -> bytes:
        """The chunk that says whose turn it is."""
        return self._chunk(b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null')

    def content(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def no_content(self) -> dict[str, Any]:
        return {"delta": {}}

    def delta(self, event: Event) -> bytes:
        text = orjson.dumps(event.text)
        return self._chunk(
            b'"delta":{"content":' + text + b'},"logprobs":null,"finish_reason":null', event.token_ids
        )

    @staticmethod
    def prompt_ids_home(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        return body


class TextAnswer(Answer):
    """`/v1/completions`."""

    name, chunk_name, id_prefix = "text_completion", "text_completion", "cmpl"

    def opening(self) -> bytes:
        return b""

    def content(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def no_content(self) -> dict[str, Any]:
        return {"text": ""}

    def delta(self, event: Event) -> bytes:
        text = orjson.dumps(event.text)
        return self._chunk(b'"text":' + text + b',"logprobs":null,"finish_reason":null', event.token_ids)

    @staticmethod
    def prompt_ids_home(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        return choice


def answer_to(job: Job, uid: int, model: str) -> Answer:
    """The encoder for a job's answer: a chat's if it has messages."""
    return (TextAnswer if job.messages is None else ChatAnswer)(job, uid, model)
