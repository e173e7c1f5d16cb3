"""Load from a file: what arrived somewhere, when, and how long it was.

Each line is a JSON object:

    {"arrival": 0.25, "prompt": "Once upon", "output_tokens": 64}
    {"arrival": 0.50, "prompt_tokens": 512, "output_tokens": 64}

`arrival` is in seconds from the start. `prompt` is a text or a list of token ids; `prompt_tokens` asks for so
many random ones instead. Blank lines are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from stretto.bench.workload import Prompt, Session, Turn


class TraceError(ValueError):
    """A line that is no request; the message names it."""


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One request."""

    output_tokens: Annotated[int, Meta(ge=1)]
    arrival: Annotated[float, Meta(ge=0)] = 0.0
    prompt: str | list[int] | None = None
    prompt_tokens: Annotated[int, Meta(ge=1)] | None = None


class Trace(NamedTuple):
    """Requests in the order of their arrival, seconds from the start."""

    arrivals: list[float]
    sessions: list[Session]


_decoder = msgspec.json.Decoder(Line)


def read(lines: Iterable[str], vocabulary: int, seed: int) -> Trace:
    """Read a trace; raises `TraceError`. Random tokens are drawn as `workload` draws them."""
    rng, found = Random(seed), []
    for number, text in enumerate(lines, 1):
        if text.strip():
            line = _decode(text, number)
            found.append((line.arrival, [Turn(_prompt(line, vocabulary, rng), line.output_tokens)]))
    if not found:
        raise TraceError("the trace has no requests")
    found.sort(key=lambda request: request[0])
    return Trace([arrival for arrival, _ in found], [session for _, session in found])


def _decode(text: str, number: int) -> Line:
    try:
        line = _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise TraceError(f"line {number}: {error}") from None
    if (line.prompt is None) == (line.prompt_tokens is None):
        raise TraceError(f"line {number}: give either `prompt` or `prompt_tokens`")
    return line


def _prompt(line: Line, vocabulary: int, rng: Random) -> Prompt:
    if line.prompt is not None:
        return line.prompt
    return rng.choices(range(vocabulary), k=line.prompt_tokens or 0)
