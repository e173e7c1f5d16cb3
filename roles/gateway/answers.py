"""The wire format of answers: OpenAI's, to the letter, with vLLM's extensions where a client asks for them.

Whole answers are encoded once per request. Streams are server-sent events, one bytes object per event: all
that does not change within a request is encoded once, and an event is put together by concatenation.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping
from typing import Any, ClassVar

import orjson
from msgspec.structs import replace

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
        self._rich = self._ids or self._logprobs or job.prompt_logprobs is not None
        self._forms: dict[int, ChatLogprobs | TextLogprobs] = {}
        self._counts = job.include_usage or job.continuous_usage
        self._tally, self._left = Tally(job), len(job.positions)
        nothing_yet = {"usage": None} if job.include_usage and not job.continuous_usage else {}
        shared = b"data: " + orjson.dumps(self._head(self.chunk_name) | nothing_yet)[:-1]
        self._prefixes = {
            position: shared + b',"choices":[{"index":%d,' % job.index(position) for position in job.positions
        }

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

    def _form(self, choice: int, event: Event) -> dict[str, Any] | None:
        """`logprobs` for the next tokens of one choice, however choices are told apart."""
        if not self._logprobs:
            return None
        if choice not in self._forms:
            self._forms[choice] = self.logprobs_form(self._job)
        return self._forms[choice].form(event)

    def _tell_of_prompt(self, body: dict[str, Any], choice: dict[str, Any], event: Event) -> None:
        """Put what an event says of its prompt, if that was asked for, where the API has it."""
        home = self.prompt_home(body, choice)
        if self._ids and event.finish_reason is not None:
            home["prompt_token_ids"] = id_list(event.prompt_ids) or home.get("prompt_token_ids", [])
        if (table := prompt_object(self._job, event)) is not None:
            home["prompt_logprobs"] = table

    # The stream.

    def opening(self, events: list[Event]) -> bytes:
        """What comes before the first events, which are given."""
        for event in events:
            self._tally.meet(event.uid - self._uid, event.usage)
        return b"".join(self._chunk(position, self.role) for position in self._prefixes if self.role)

    def event(self, event: Event) -> bytes:
        """Server-sent events for one event of the request; the last one ends the stream.

        An error ends it without [DONE], so that no client takes a broken answer for a whole one.
        """
        position, text = event.uid - self._uid, shown(event)
        if self._counts:
            self._tally.add(position, event)
        out = self._of_prompt(position, event) if self._rich else b""
        if text or (self._rich and self._is_told(event)):
            out += self._delta(position, event, text)
        if event.finish_reason is not None:
            out += self._end(position, event)
        return out

    def _of_prompt(self, position: int, event: Event) -> bytes:
        if self._job.prompt_logprobs is None or event.prompt_logprobs is None:
            return b""
        return self._wordless(position, replace(event, finish_reason=None, stop_reason=None))

    def _is_told(self, event: Event) -> bool:
        """Whether an event without text has tokens to tell of."""
        if self._logprobs and self._job.echo and event.prompt_logprobs:
            return True
        return bool(event.token_ids) and (self._ids or self._logprobs)

    def _delta(self, position: int, event: Event, text: str) -> bytes:
        choice = self.delta(orjson.dumps(text)) + b',"logprobs":'
        choice += orjson.dumps(self._form(position, event)) if self._logprobs else b"null"
        choice += b',"finish_reason":null'
        if self._ids and event.token_ids:
            choice += b',"token_ids":' + orjson.dumps(id_list(event.token_ids))
        return self._chunk(position, choice)

    def _chunk(self, position: int, choice: bytes) -> bytes:
        """A chunk of one choice, whose fields after the index are given."""
        if not self._job.continuous_usage:
            return self._prefixes[position] + choice + b"}]}\n\n"
        usage = orjson.dumps(usage_object(self._tally.known()))
        return self._prefixes[position] + choice + b'}],"usage":' + usage + b"}\n\n"

    def _end(self, position: int, event: Event) -> bytes:
        if event.fault is not None:
            return b"data: " + error_json(event.fault) + b"\n\n"
        self._left -= 1
        out = self._wordless(position, replace(event, prompt_logprobs=None))
        return out if self._left else out + self._closing()

    def _wordless(self, position: int, event: Event) -> bytes:
        """A chunk that says how a choice ends, or what there is to say of its prompt."""
        choice = {"index": self._job.index(position), **self.no_content(), "logprobs": None}
        choice |= {"finish_reason": event.finish_reason, "stop_reason": event.stop_reason}
        body = self._head(self.chunk_name) | {"choices": [choice]}
        self._tell_of_prompt(body, choice, event)
        if self._job.continuous_usage:
            body["usage"] = usage_object(self._tally.known())
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
