"""Log-probabilities on the wire: OpenAI's two forms, and vLLM's for prompts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stretto.roles.gateway.job import Job
from stretto.roles.messages import Alternative, Event, TokenInfo

FLOOR = -9999.0
"""Stands for minus infinity, which JSON does not have; vLLM's number."""

Token = Alternative | TokenInfo


def finite(logprob: float) -> float:
    """What JSON can carry."""
    return max(logprob, FLOOR)


class ChatLogprobs:
    """OpenAI's chat form: for each token its text, its true bytes, and as many alternatives as asked for."""

    def __init__(self, job: Job) -> None:
        self._top, self._as_ids = job.params.logprobs or 0, job.tokens_as_ids

    def form(self, event: Event) -> dict[str, Any]:
        """`logprobs` of a choice, for the tokens of one event."""
        content = [
            {**self._token(info), "top_logprobs": [self._token(other) for other in info.top[: self._top]]}
            for info in event.logprobs
        ]
        return {"content": content, "refusal": None}

    def _token(self, token: Token) -> dict[str, Any]:
        text = f"token_id:{token.id}" if self._as_ids else token.token
        return {"token": text, "logprob": finite(token.logprob), "bytes": list(token.raw)}


class TextLogprobs:
    """OpenAI's older form, four parallel lists; of one choice, whose events come in order.

    A token that is no text by itself is written by its bytes, as "bytes:\\xf0\\x9f". `text_offset` counts the
    characters of the choice's text before the token, as if no text were cut off or skipped.
    """

    def __init__(self, job: Job) -> None:
        self._top, self._as_ids, self._echo = job.params.logprobs or 0, job.tokens_as_ids, job.echo
        self._chars = 0

    def form(self, event: Event) -> dict[str, Any]:
        """`logprobs` of a choice, for the tokens of one event; with `echo`, those of the prompt first."""
        form: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        if self._echo and event.prompt_logprobs and event.prompt_first:
            self._first(form, *event.prompt_first)
            self._add(form, (info for info in event.prompt_logprobs if info is not None))
        self._add(form, event.logprobs)
        return form

    def _first(self, form: dict[str, Any], token: int, raw: bytes) -> None:
        """The prompt's first token, which has no probability."""
        form["tokens"].append(self._name(token, raw))
        form["token_logprobs"].append(None)
        form["top_logprobs"].append(None)
        form["text_offset"].append(self._advance(raw))

    def _add(self, form: dict[str, Any], infos: Iterable[TokenInfo]) -> None:
        for info in infos:
            form["tokens"].append(self._name(info.id, info.raw))
            form["token_logprobs"].append(finite(info.logprob))
            form["top_logprobs"].append(self._likeliest(info))
            form["text_offset"].append(self._advance(info.raw))

    def _likeliest(self, info: TokenInfo) -> dict[str, float]:
        """The alternatives and the token itself, by text; of several of one text, the likeliest."""
        table: dict[str, float] = {}
        tokens: list[Token] = [*info.top[: self._top], info]
        for token in tokens:
            table.setdefault(self._name(token.id, token.raw), finite(token.logprob))
        return table

    def _name(self, token: int, raw: bytes) -> str:
        return f"token_id:{token}" if self._as_ids else _legible(raw)

    def _advance(self, raw: bytes) -> int:
        """Where these bytes begin, in characters; moves on to their end."""
        inside = self._chars > 0 and bool(raw) and raw[0] & 0xC0 == 0x80
        offset = self._chars - inside
        self._chars += sum(byte & 0xC0 != 0x80 for byte in raw)
        return offset


def _legible(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def prompt_object(job: Job, event: Event) -> list[dict[str, Any] | None] | None:
    """vLLM's `prompt_logprobs`: for each token of the prompt a table by id; None for the first."""
    if job.prompt_logprobs is None or event.prompt_logprobs is None:
        return None
    return [None if info is None else _table(info, job.prompt_logprobs) for info in event.prompt_logprobs]


def _table(info: TokenInfo, top: int) -> dict[str, Any]:
    table = {str(info.id): _entry(info, info.rank)}
    for rank, other in enumerate(info.top[:top], 1):
        table.setdefault(str(other.id), _entry(other, rank))
    return table


def _entry(token: Token, rank: int) -> dict[str, Any]:
    return {"logprob": finite(token.logprob), "rank": rank, "decoded_token": token.token}
