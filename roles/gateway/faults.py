"""A client's fault or our own, in the terms of OpenAI's error object."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import orjson

from stretto.roles.messages import Fault

_AT = re.compile(r" - at (?P<key>`key` in )?`\$\.?(?P<path>.*?)(\[\.\.\.\])?`$")
_NOTHING = re.compile(r"^Expected `null`, got `.*`$")
_FIELD = re.compile(r"^Object (?P<kind>contains unknown|missing required) field `(?P<field>.*)`$")
_PLACE = re.compile(r"\(byte (\d+)\)$")
_HALF_PAIR = re.compile(rb"\\ud[89ab]..(?!\\u)", re.IGNORECASE)
_CHOICE = re.compile(r"^Invalid (?:enum )?value (?P<given>.*)$")


UNKNOWN = "unknown field; leave it out."


class Refused(Exception):
    """The request ends here, with this fault as its answer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def refusal(message: str, param: str | None = None, code: str | None = None, status: int = 400) -> Refused:
    """A `Refused` that the client can mend."""
    return Refused(Fault(status, message, param=param, code=code))


OVERLOADED = Fault(429, "The server has more requests than it can take in; send this one again shortly.",
                   "rate_limit_error", code="overloaded")  # fmt: skip
QUEUE_FULL = Fault(429, "More requests wait than the server takes; send this one again later.",
                   "rate_limit_error", code="queue_full")  # fmt: skip
CLOSING = Fault(503, "The server is shutting down.", "server_error", code="shutting_down")
INTERNAL = Fault(500, "The server failed at this request; its log says why.", "server_error")


POISON = Fault(500, "Twice a process of the server died at work on this request; it is not tried again.",
               "server_error", code="poison_request")  # fmt: skip
NOT_FOUND = Fault(404, "There is no such stream: it was never resumable, or its retention time is over.",
                  code="stream_not_found")  # fmt: skip


NEVER_AGAIN = frozenset({"timeout", "poison_request", "nan_logits"})
"""Codes of what would come to the same end once more, though the status is one that clients try again at."""


def unknown_model(name: str, served: str) -> Refused:
    """A request is for a model that is not here."""
    message = f"The model {name!r} does not exist; this server serves {served!r}."
    return refusal(message, "model", "model_not_found", status=404)


def error_object(fault: Fault) -> dict[str, str | None]:
    """What stands under "error" in every answer that is one."""
    return {"message": fault.message, "type": fault.type, "param": fault.param, "code": fault.code}


def error_json(fault: Fault) -> bytes:
    """The whole JSON body of an error answer."""
    return orjson.dumps({"error": error_object(fault)})


def undecodable(
    error: msgspec.DecodeError | RecursionError,
    choices: Callable[[str], Sequence[Any]] = lambda path: (),
    unknown: str = UNKNOWN,
    data: bytes = b"",
) -> Refused:
    """Say what is wrong with a body or frame, and name the field where one is to blame.

    msgspec keeps the path of the field in its message only, so that is where it is read from. `choices` knows
    the values that the field at a path may have, which the message does not; `unknown` is said of a field
    that is not known; `data` is what was to be decoded.
    """
    if isinstance(error, RecursionError):
        return refusal("The JSON is nested too deeply.")
    if not isinstance(error, msgspec.ValidationError):
        reason = str(error).removeprefix("JSON is malformed: ")
        return refusal(f"This is not valid JSON: {reason}.{_hint(str(error), data)}")
    text = str(error)
    at = _AT.search(text)
    path = at["path"] if at else ""
    text = _AT.sub(" as a key" if at and at["key"] else "", text)
    text = _NOTHING.sub("this is not supported; leave it out.", text)
    if field := _FIELD.match(text):
        path = f"{path}.{field['field']}" if path else field["field"]
        text = unknown if field["kind"] == "contains unknown" else "this field is required."
    if (given := _CHOICE.match(text)) and (values := choices(path)):
        known = " or ".join(orjson.dumps(value).decode() for value in values)
        text = f"Expected {known}, got {given['given']}"
    return refusal(f"{path}: {text}" if path else text, param=path or None)


def _hint(text: str, data: bytes) -> str:
    """Names what other writers of JSON let through, where that is what the decoder stumbled over.

    Of half a surrogate pair it says so itself, but within the last 11 bytes: there it misses the other half.
    """
    place = _PLACE.search(text)
    if place and data.startswith((b"NaN", b"Infinity"), int(place[1])):
        return " NaN and Infinity are not JSON."
    if not place and _HALF_PAIR.search(data, max(0, len(data) - 11)):
        return " Half a surrogate pair is not JSON."
    return ""
