"""The wire format of answers: OpenAI's, to the letter, with vLLM's extensions where a client asks for them.

Whole answers are encoded once per request. Streams are server-sent events, one bytes object per event: all
that does not change within a request is encoded once, and an event is put together by concatenation.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import orjson

from stretto.roles.gateway.faults import error_json
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.logprobs import ChatLogprobs, TextLogprobs, prompt_object
from stretto.roles.gateway.usage import Tally, choices, total, usage_object
from stretto.roles.messages import Event

DONE = b"data: [DONE]\n\n"


def id_list(ids: bytes) -> list[int]:
    """Token ids, int32 bytes, as a list."""
    return array("i", ids).tolist()


def shown(event: Event) -> str:
    """The text of an event, with what its choice begins with."""
    return event.text if event.prompt_text is None else event.prompt_text + event.text


class Answer:
    """Encodes the answer to one request. Subclasses say what is particular to their API."""

    name: ClassVar[str]
    """Of the object when it is whole."""
    chunk_name: ClassVar[str]
    """Of the object in a stream."""
    id_prefix: ClassVar[str]
    logprobs_form: ClassVar[type[ChatLogprobs | TextLogprobs]]
    role: ClassVar[bytes] = b""
    """A chunk's choice, after the index, with which a stream begins every choice; empty: none."""

    def __init__(self, job: Job, uid: int, model: str) -> None:
        self._job, self._uid, self._ids = job, uid, job.return_token_ids
        self._id = job.request_id or f"{self.id_prefix}-{uid:016x}"
        self._created, self._model = int(time.time()), model
        self._logprobs = job.params.logprobs is not None
        self._forms: dict[int, ChatLogprobs | TextLogprobs] = {}
        self._tally, self._left = Tally(job), len(job.positions)
        nothing_yet = {"usage": None} if job.include_usage and not job.continuous_usage else {}
        shared = self._head(self.chunk_name) | nothing_yet
        self._prefix = b"data: " + orjson.dumps(shared)[:-1] + b',"choices":[{"index":'

    def _head(self, name: str) -> dict[str, Any]:
        return {"id": self._id, "object": name, "created": self._created, "model": self._model}

    # The whole answer.

    def whole(self, events: Mapping[int, Event]) -> bytes:
        """The JSON body for a request that is not streamed, from what each of its sequences said."""
        body = self._head(self.name) | {"choices": [], "usage": usage_object(total(self._job, events))}
        for index, event in enumerate(choices(self._job, events)):
            choice = {"index": index, **self.content(shown(event)), "logprobs": self._form(index, event)}
            choice |= {"finish_reason": event.finish_reason, "stop_reason": event.stop_reason}
            if self._ids:
                choice["token_ids"] = id_list(event.token_ids)
            self._tell_of_prompt(body, choice, event)
            body["choices"].append(choice)
        return orjson.dumps(body)

    def _form(self, index: int, event: Event) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        if index not in self._forms:
            self._forms[index] = self.logprobs_form(self._job)
        return self._forms[index].form(event)

    def _tell_of_prompt(self, body: dict[str, Any], choice: dict[str, Any], event: Event) -> None:
        """Put what an event says of its prompt, if that was asked for, where the API has it."""
        home = self.prompt_home(body, choice)
        if self._ids and event.finish_reason is not None:
            home["prompt_token_ids"] = id_list(event.prompt_ids)
        if (table := prompt_object(self._job, event)) is not None:
            home["prompt_logprobs"] = table

    # The stream.

    def opening(self, events: list[Event]) -> bytes:
        """What comes before the first events, which are given."""
        for event in events:
            self._tally.meet(event.uid - self._uid, event.usage)
        return b"".join(self._chunk(self._job.index(i), self.role) for i in self._job.positions if self.role)

    def event(self, event: Event) -> bytes:
        """Server-sent events for one event of the request; the last one ends the stream.

        An error ends it without [DONE], so that no client takes a broken answer for a whole one.
        """
        position = event.uid - self._uid
        self._tally.add(position, event)
        out = self._news(self._job.index(position), event)
        if event.finish_reason is None:
            return out
        if event.fault is not None:
            return out + b"data: " + error_json(event.fault) + b"\n\n"
        self._left -= 1
        out += self._wordless(self._job.index(position), msgspec.structs.replace(event, prompt_logprobs=None))
        return out if self._left else out + self._closing()

    def _news(self, index: int, event: Event) -> bytes:
        """Chunks with what an event brings, the end apart."""
        out, text = b"", shown(event)
        if self._job.prompt_logprobs is not None and event.prompt_logprobs is not None:
            out = self._wordless(index, msgspec.structs.replace(event, finish_reason=None, stop_reason=None))
        told = event.token_ids or (self._job.echo and event.prompt_logprobs)
        if text or ((self._ids or self._logprobs) and told):
            out += self._delta(index, event, text)
        return out

    def _delta(self, index: int, event: Event, text: str) -> bytes:
        logprobs = orjson.dumps(self._form(index, event)) if self._logprobs else b"null"
        choice = self.delta(orjson.dumps(text)) + b',"logprobs":' + logprobs + b',"finish_reason":null'
        if self._ids and event.token_ids:
            choice += b',"token_ids":' + orjson.dumps(id_list(event.token_ids))
        return self._chunk(index, choice)

    def _chunk(self, index: int, choice: bytes) -> bytes:
        """A chunk of one choice, whose fields after the index are given."""
        out = self._prefix + b"%d," % index + choice + b"}]"
        if self._job.continuous_usage:
            out += b',"usage":' + orjson.dumps(usage_object(self._tally.usage()))
        return out + b"}\n\n"

    def _wordless(self, index: int, event: Event) -> bytes:
        """A chunk that says how a choice ends, or what there is to say of its prompt."""
        choice: dict[str, Any] = {"index": index, **self.no_content(), "logprobs": None}
        choice |= {"finish_reason": event.finish_reason, "stop_reason": event.stop_reason}
        body = self._head(self.chunk_name) | {"choices": [choice]}
        self._tell_of_prompt(body, choice, event)
        if self._job.continuous_usage:
            body["usage"] = usage_object(self._tally.usage())
        elif self._job.include_usage:
            body["usage"] = None
        return b"data: " + orjson.dumps(body) + b"\n\n"

    def _closing(self) -> bytes:
        if not self._job.include_usage:
            return DONE
        body = self._head(self.chunk_name) | {"choices": [], "usage": usage_object(self._tally.usage())}
        return b"data: " + orjson.dumps(body) + b"\n\n" + DONE

    # What differs between the APIs.

    def content(self, text: str) -> dict[str, Any]:
        """The part of a whole choice that holds the text."""
        raise NotImplementedError

    def no_content(self) -> dict[str, Any]:
        """The same part of a stream's terminal choice."""
        raise NotImplementedError

    def delta(self, text: bytes) -> bytes:
        """The same part of a chunk; `text` is JSON already."""
        raise NotImplementedError

    @staticmethod
    def prompt_home(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        """Which of the two carries what is said of the prompt."""
        raise NotImplementedError
