"""What the detokenizers have yet to be told, in messages they can handle: opens, then tokens, then ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from stretto.roles import messages as m
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.table import Slots

MAX_PROMPT_BYTES = 1 << 20
"""What one message may carry of prompts and their log-probabilities, one item more or less: well under a
ring's largest record (4 MiB)."""


PATIENCE = 16
"""Steps whose tokens are told at once where nobody waits for them. To wake a detokenizer costs some tenths
of a millisecond, most of it for what the weights have pushed out of the caches."""


@dataclass(slots=True)
class _Batch:
    """One message per detokenizer."""

    opens: list[m.Open] = field(default_factory=list)
    scores: list[m.PromptLogprobs] = field(default_factory=list)
    prompt_bytes: int = 0
    """Of the opens and the scores."""
    hits: list[tuple[int, int]] = field(default_factory=list)
    tokens: tuple[Slots, Ints, Slots] | None = None
    """Uids, ids, indices."""
    logprobs: Sequence[m.TokenLogprobs] = ()
    ends: list[m.End] = field(default_factory=list)


class Outbox:
    """Keeps the order of events for each uid; a uid's token appears at most once per message."""

    def __init__(self, detokenizers: int) -> None:
        self._detokenizers = detokenizers
        self._batches: list[_Batch] = []
        self._urgent = False
        """Somebody waits for something that is in the batches."""

    def open(self, message: m.Open) -> None:
        """Announce a request; after all that was said of one with its uid, which may come again."""
        if self._batches and _tells(self._batches[-1], message.uid):
            self._next()
        size = len(message.output.prompt_ids) + len(message.request) + len(message.generated)
        self._room(size).opens.append(message)

    def score(self, message: m.PromptLogprobs) -> None:
        """Log-probabilities of a part of a prompt."""
        self._room(len(message.logprobs) + len(message.ranks) + 2 * len(message.top)).scores.append(message)

    def hit(self, uid: int, cached: int) -> None:
        """A request's first token comes next: so many of its prompt's were cached."""
        batch = self._last()
        if batch.tokens is not None:
            batch = self._next()
        batch.hits.append((uid, cached))
        self._urgent = True

    def tokens(
        self,
        uids: Slots,
        ids: Ints,
        indices: Slots,
        logprobs: Sequence[m.TokenLogprobs] = (),
        patient: bool = False,
    ) -> None:
        """One token for each uid, with log-probabilities for some; patient: all are, see `m.Output`."""
        batch = self._last()
        if batch.tokens is not None:
            batch = self._next()
        batch.tokens, batch.logprobs = (uids, ids, indices), logprobs
        self._urgent |= not patient

    def end(self, message: m.End) -> None:
        """The last word on a request."""
        self._last().ends.append(message)
        self._urgent = True

    def take(self) -> list[tuple[int, m.Tokens]]:
        """(detokenizer, message) pairs, to be sent in this order; nothing while all of it can wait."""
        if not self._urgent and len(self._batches) < PATIENCE:
            return []
        batches, self._batches, self._urgent = self._batches, [], False
        return [pair for batch in batches for pair in self._split(batch)]

    def _last(self) -> _Batch:
        return self._batches[-1] if self._batches else self._next()

    def _next(self) -> _Batch:
        self._batches.append(_Batch())
        return self._batches[-1]

    def _room(self, size: int) -> _Batch:
        """A batch that can take `size` bytes of prompts before its tokens."""
        batch = self._last()
        if batch.prompt_bytes and batch.prompt_bytes + size > MAX_PROMPT_BYTES:
            batch = self._next()
        batch.prompt_bytes += size
        self._urgent = True
        return batch

    def forget_tokens(self, detokenizer: int) -> None:
        """Those that wait for a detokenizer that died; its successor does not know what they belong to."""

        def others(uid: Any) -> Any:
            return uid % self._detokenizers != detokenizer

        for batch in self._batches:
            batch.tokens = _share_tokens(batch.tokens, others)
            batch.logprobs = [entry for entry in batch.logprobs if others(entry.uid)]

    def _split(self, batch: _Batch) -> list[tuple[int, m.Tokens]]:
        if self._detokenizers == 1:
            return [(0, _message(batch))]
        shares = ((index, self._share_of(batch, index)) for index in range(self._detokenizers))
        return [(index, _message(share)) for index, share in shares if share is not None]

    def _share_of(self, batch: _Batch, index: int) -> _Batch | None:
        return _share(batch, lambda uid: uid % self._detokenizers == index)


def _share(batch: _Batch, wanted: Callable[[Any], Any]) -> _Batch | None:
    """What concerns the uids that are `wanted`, one or an array of them; None when there is nothing."""
    share = _Batch(
        [opened for opened in batch.opens if wanted(opened.uid)],
        [part for part in batch.scores if wanted(part.uid)],
        0,
        [hit for hit in batch.hits if wanted(hit[0])],
        _share_tokens(batch.tokens, wanted),
        [entry for entry in batch.logprobs if wanted(entry.uid)],
        [end for end in batch.ends if wanted(end.uid)],
    )
    said = share.opens, share.scores, share.hits, share.ends
    return share if share.tokens is not None or any(said) else None


def _share_tokens(
    tokens: tuple[Slots, Ints, Slots] | None, wanted: Callable[[Any], Any]
) -> tuple[Slots, Ints, Slots] | None:
    if tokens is None:
        return None
    uids, ids, indices = tokens
    mine: npt.NDArray[np.bool_] = wanted(uids)
    return (uids[mine], ids[mine], indices[mine]) if mine.any() else None


def _tells(batch: _Batch, uid: int) -> bool:
    """Whether a batch has tokens or the end of this uid."""
    tokens = batch.tokens is not None and bool((batch.tokens[0] == uid).any())
    return tokens or any(end.uid == uid for end in batch.ends)


def _message(batch: _Batch) -> m.Tokens:
    if batch.tokens is None:
        return m.Tokens(batch.opens, ends=batch.ends, prompt_logprobs=batch.scores, hits=batch.hits)
    uids, ids, indices = batch.tokens
    return m.Tokens(
        batch.opens,
        uids.tobytes(),
        ids.tobytes(),
        indices.astype(np.int32).tobytes(),
        batch.ends,
        list(batch.logprobs),
        batch.scores,
        batch.hits,
    )
