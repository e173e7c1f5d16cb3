"""The wire format of SGLang's `/generate`: every chunk of a stream says all that was said so far."""

from __future__ import annotations

from typing import Any

from stretto.roles.gateway.answers import id_list
from stretto.roles.gateway.logprobs import finite
from stretto.roles.gateway.sglang_intake import Wanted
from stretto.roles.messages import Alternative, Event, TokenInfo, Usage

Entry = list[Any]
"""[log-probability, token id, text or null]"""


class Output:
    """One choice's answer, as far as it has come."""

    def __init__(self, wanted: Wanted, id: str, arrived: float) -> None:
        self._wanted, self._id, self._arrived = wanted, id, arrived
        self._text = ""
        self._ids: list[int] = []
        self._infos: list[TokenInfo] = []
        self._prompt: list[TokenInfo | None] = []
        self._prompt_ids = _given_ids(wanted)
        self._usage = Usage(0, 0)

    def add(self, event: Event, now: float) -> dict[str, Any]:
        """Take in one event; the object that says all so far."""
        self._text += event.text
        self._ids += id_list(event.token_ids)
        self._infos += event.logprobs
        self._prompt += event.prompt_logprobs or []
        self._prompt_ids = id_list(event.prompt_ids) or self._prompt_ids
        self._usage = event.usage or self._usage
        meta: dict[str, Any] = {
            "id": self._id,
            "finish_reason": self._finish_reason(event),
            "prompt_tokens": self._usage.prompt_tokens,
            "completion_tokens": len(self._ids),
            "cached_tokens": self._usage.cached_tokens,
        }
        if self._wanted.top is not None:
            meta |= self._logprobs()
        if event.finish_reason is not None:
            meta["e2e_latency"] = now - self._arrived
        return {"text": self._text, "output_ids": list(self._ids), "meta_info": meta}

    def _finish_reason(self, event: Event) -> dict[str, Any] | None:
        """The model's own end of sequence is what matched where nothing else did."""
        match event.finish_reason:
            case None:
                return None
            case "stop":
                own = self._ids[-1] if self._ids else None
                return {"type": "stop", "matched": own if event.stop_reason is None else event.stop_reason}
            case "length":
                return {"type": "length", "length": len(self._ids)}
        return {"type": "abort", "message": "The request was aborted."}

    def _logprobs(self) -> dict[str, Any]:
        start = len(self._prompt) if self._wanted.start is None else self._wanted.start
        scored = [info for info in self._prompt[start + 1 :] if info is not None]
        first = [self._first(start)] if start < len(self._prompt) else []
        meta: dict[str, Any] = {
            "input_token_logprobs": first + [self._entry(info) for info in scored],
            "output_token_logprobs": [self._entry(info) for info in self._infos],
        }
        if self._wanted.top:
            meta["input_top_logprobs"] = [None for _ in first] + [self._top(info) for info in scored]
            meta["output_top_logprobs"] = [self._top(info) for info in self._infos]
        return meta

    def _first(self, start: int) -> Entry:
        """SGLang scores no token at `logprob_start_len` itself, only those after it."""
        if (info := self._prompt[start]) is not None:
            return [None, *self._entry(info)[1:]]
        return [None, self._prompt_ids[start] if self._prompt_ids else None, None]

    def _entry(self, info: TokenInfo | Alternative) -> Entry:
        return [finite(info.logprob), info.id, info.token if self._wanted.with_text else None]

    def _top(self, info: TokenInfo) -> list[Entry]:
        return [self._entry(other) for other in info.top]


def _given_ids(wanted: Wanted) -> list[int]:
    """The prompt's ids where the client gave ids; else they are known at the end."""
    (prompt,) = wanted.job.prompts
    return prompt if isinstance(prompt, list) else []
