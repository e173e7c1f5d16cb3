"""What a client has been given of a sequence, so that after a death only the rest is asked for and passed on.

Whatever comes again comes from the same tokens: the text that is certain after k tokens is a function of
those k tokens. So a repeated event, however it is cut, is recognised by its first token (`index`) and its
first character (`offset`), and what of it was delivered is cut away.
"""

from __future__ import annotations

from msgspec.structs import replace

from stretto.roles.messages import Event

ID_BYTES = 4
"""Of a token id, int32."""


class Gap(Exception):
    """An event begins after what has been delivered: something between is missing."""


class Account:
    """How much of one sequence has been delivered."""

    __slots__ = ("_ids", "begun", "characters", "tokens")

    def __init__(self, tokens: int = 0) -> None:
        """`tokens` that the client has from another connection; how many characters they are is not known."""
        self.tokens = tokens
        self.characters: int | None = None if tokens else 0
        """None: not known before the first event that continues exactly where the client is."""
        self.begun = tokens > 0
        """What the first event says of the prompt has been told."""
        self._ids: bytearray | None = None if tokens else bytearray()

    @property
    def ids(self) -> bytes:
        """int32: all tokens delivered; empty where they are not all known here."""
        return b"" if self._ids is None else bytes(self._ids)

    def take(self, event: Event) -> Event | None:
        """What of an event is news, which counts as delivered from then on; None: nothing.

        Raises `Gap`.
        """
        if event.index > self.tokens or (event.index < self.tokens and self.characters is None):
            raise Gap
        news = event if event.index == self.tokens and not self.begun else self._cut(event)
        if news.text or news.token_ids or news.finish_reason is not None or not self.begun:
            self._book(news)
            return news
        return None

    def _cut(self, event: Event) -> Event:
        """The event without what was delivered. Its text is whole where its tokens are."""
        told = event.prompt_logprobs is not None or event.prompt_text is not None
        if event.index == self.tokens and not told:
            return event
        known = self.tokens - event.index
        ids = event.token_ids[ID_BYTES * known :]
        return replace(
            event,
            index=self.tokens,
            offset=event.offset if self.characters is None else max(event.offset, self.characters),
            text=event.text if not known else event.text[max(0, (self.characters or 0) - event.offset) :],
            token_ids=ids,
            logprobs=event.logprobs[known:],
            prompt_logprobs=None,
            prompt_text=None,
            prompt_first=None,
            usage=None if event.finish_reason is None else event.usage,
        )

    def _book(self, event: Event) -> None:
        self.begun = True
        self.tokens += len(event.token_ids) // ID_BYTES
        if self.characters is None:
            self.characters = event.offset
        self.characters += len(event.text)
        if self._ids is not None:
            self._ids += event.token_ids
