"""Server-sent events of OpenAI's streaming API, from bytes; no input or output here."""

from __future__ import annotations

import msgspec

from stretto.bench.answer import Answer, Usage


class Choice(msgspec.Struct):
    """Of a chunk; what is not looked at is skipped."""

    text: str | None = None
    token_ids: list[int] | None = None


class Problem(msgspec.Struct):
    """OpenAI's error object, as far as it is shown."""

    message: str


class Chunk(msgspec.Struct):
    """One event of `/v1/completions`."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Problem | None = None


class Problems(msgspec.Struct):
    """The body of a refusal."""

    error: Problem


_chunk = msgspec.json.Decoder(Chunk)


class Reader:
    """Feeds what one stream brings to its `Answer`."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._rest = answer, b""
        self.complete = False
        """[DONE] has come."""

    def feed(self, data: bytes, now: float) -> None:
        """Take bytes that came at `now`; raises `msgspec.DecodeError` for events that are no chunks."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._hear(line[5:].strip(), now)

    def _hear(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self.complete = True
            return
        chunk = _chunk.decode(data)
        if chunk.error is not None:
            self._answer.error = chunk.error.message
        for choice in chunk.choices:
            self._answer.hear(now, choice.text, choice.token_ids)
        self._answer.usage = chunk.usage or self._answer.usage


def message(body: bytes) -> str:
    """What an error body says."""
    try:
        return msgspec.json.decode(body, type=Problems).error.message
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace")
