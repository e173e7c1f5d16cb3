"""What a retained stream has told, so that it can be told again from any token on."""

from __future__ import annotations

from array import array

from msgspec.structs import replace

from stretto.roles.messages import Event, TokenInfo


class History:
    """Everything since the first token. Which text is certain after k tokens depends on these alone."""

    __slots__ = ("_ends", "_first", "_ids", "_infos", "_last", "_text")

    def __init__(self) -> None:
        self._ends = array("q", [0])
        """Characters of text that are certain after so many tokens."""
        self._text: list[str] = []
        self._ids = array("i")
        self._infos: list[TokenInfo] = []
        self._first: Event | None = None
        self._last: Event | None = None

    @property
    def ended(self) -> bool:
        """Whether the terminal event is there."""
        return self._last is not None

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        alternatives = sum(1 + len(info.top) for info in self._infos)
        return 1024 + len(self._ends) * 16 + self._ends[-1] + 256 * alternatives

    def token(self, chars: int) -> None:
        """A token has come that made so many characters certain."""
        self._ends.append(self._ends[-1] + chars)

    def add(self, event: Event) -> None:
        """An event is told, or would be, were anybody there."""
        self._first = self._first or event
        self._last = event if event.finish_reason is not None else None
        self._text.append(event.text)
        self._ids.frombytes(event.token_ids)
        self._infos += event.logprobs

    def since(self, index: int) -> Event | None:
        """All that was told from token `index` on as one event; None while there is nothing.

        The first event's account of the prompt is for those who start at the first token.
        """
        first, last = self._first, self._last
        if last is not None:
            index = min(index, len(self._ids))
        elif index >= len(self._ids):
            return None
        assert first is not None
        text, base = "".join(self._text), last or first
        offset = min(self._ends[index], len(text))
        event = replace(
            base,
            index=index,
            offset=offset,
            text=text[offset:],
            token_ids=self._ids[index:].tobytes(),
            logprobs=self._infos[index:],
            prompt_logprobs=None if index else first.prompt_logprobs,
            prompt_first=None if index else first.prompt_first,
            prompt_text=None if index else first.prompt_text,
        )
        self._text = [text]
        return event
