"""Answers of the two completion APIs in one form, whether they came whole or in pieces."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel


def told(answer: BaseModel) -> list[dict[str, Any]]:
    """The choices of a whole answer, by index."""
    choices = sorted(answer.model_dump()["choices"], key=lambda choice: choice["index"])
    return [_merged([choice]) for choice in choices]


def heard(chunks: Iterable[BaseModel]) -> list[dict[str, Any]]:
    """The same of a stream, whose chunks of several choices may interleave."""
    pieces: dict[int, list[dict[str, Any]]] = {}
    for chunk in chunks:
        for choice in chunk.model_dump()["choices"]:
            pieces.setdefault(choice["index"], []).append(choice)
    return [_merged(pieces[index]) for index in sorted(pieces)]


def of_prompt(answers: Iterable[BaseModel]) -> dict[str, Any]:
    """What is said of the first prompt, wherever and in whichever piece it is said."""
    said: dict[str, Any] = {}
    for answer in answers:
        dump = answer.model_dump()
        for home in (dump, *dump["choices"]):
            for name in ("prompt_token_ids", "prompt_logprobs"):
                if home.get(name) is not None:
                    said.setdefault(name, home[name])
    return said


def _merged(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    last = pieces[-1]
    return {
        "text": "".join(_text(piece) for piece in pieces),
        "token_ids": [token for piece in pieces for token in piece.get("token_ids") or []],
        "logprobs": [entry for piece in pieces for entry in _logprobs(piece["logprobs"])],
        "finish_reason": last["finish_reason"],
        "stop_reason": last["stop_reason"],
    }


def _text(piece: dict[str, Any]) -> str:
    if "text" in piece:
        return piece["text"]
    return (piece.get("message") or piece["delta"]).get("content") or ""


def _logprobs(form: dict[str, Any] | None) -> list[Any]:
    """One entry per token, of either form."""
    if form is None:
        return []
    if "content" in form:
        return form["content"]
    return list(
        zip(form["tokens"], form["token_logprobs"], form["top_logprobs"], form["text_offset"], strict=True)
    )
