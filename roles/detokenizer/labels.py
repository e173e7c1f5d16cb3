"""Log-probabilities as the client sees them: each token with its text and its true bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from stretto.roles.messages import Alternative, PromptLogprobs, TokenInfo, TokenLogprobs

LABELS = 1 << 15
"""Tokens whose text is kept, some 6 MB: the likeliest twenty are much the same ones from token to token."""


class Labels:
    """Puts names to ids. One object serves all requests: what a token is called depends on nothing else."""

    def __init__(self, raw: Callable[[int], bytes]) -> None:
        """`raw` gives a token's bytes, none for an id that the vocabulary lacks."""
        self._raw = raw
        self._label = lru_cache(LABELS)(self._make)

    def _make(self, token: int) -> tuple[str, bytes]:
        raw = self._raw(token)
        return raw.decode(errors="replace"), raw

    def token(self, token: int, found: TokenLogprobs) -> TokenInfo:
        """A token of the output."""
        top = self._top(memoryview(found.top_ids).cast("i"), memoryview(found.top).cast("f"))
        return TokenInfo(token, *self._label(token), found.logprob, found.rank, top)

    def prompt(self, tokens: memoryview[int], found: PromptLogprobs) -> Iterator[TokenInfo]:
        """The prompt's tokens from `found.start` on; `tokens` are those of the whole prompt, int32."""
        logprobs, ranks = memoryview(found.logprobs).cast("f"), memoryview(found.ranks).cast("i")
        ids, values = memoryview(found.top_ids).cast("i"), memoryview(found.top).cast("f")
        k = len(ids) // max(len(ranks), 1)
        for row, (logprob, rank) in enumerate(zip(logprobs, ranks, strict=True)):
            token, part = tokens[found.start + row], slice(row * k, row * k + k)
            yield TokenInfo(token, *self._label(token), logprob, rank, self._top(ids[part], values[part]))

    def _top(self, ids: Iterable[int], logprobs: Iterable[float]) -> list[Alternative]:
        label = self._label
        return [
            Alternative(token, *label(token), logprob) for token, logprob in zip(ids, logprobs, strict=True)
        ]
