"""What the detokenizers have yet to be told, in messages they can handle: opens, then tokens, then ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stretto.roles import messages as m
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.table import Slots

MAX_OPEN_BYTES = 1 << 20
"""Prompts that the opens of one message may carry, well under a ring's largest record (4 MiB)."""


@dataclass(slots=True)
class _Batch:
    """One message per detokenizer."""

    opens: list[m.Open] = field(default_factory=list)
    open_bytes: int = 0
    tokens: tuple[Slots, Ints, Slots] | None = None
    """Uids, ids, indices."""
    ends: list[m.End] = field(default_factory=list)


class Outbox:
    """Keeps the order of events for each uid; a uid's token appears at most once per message."""

    def __init__(self, detokenizers: int) -> None:
        self._detokenizers = detokenizers
        self._batches: list[_Batch] = []

    def open(self, message: m.Open) -> None:
        """Announce a request."""
        size = len(message.output.prompt_ids)
        batch = self._last()
        if batch.opens and batch.open_bytes + size > MAX_OPEN_BYTES:
            batch = self._next()
        batch.opens.append(message)
        batch.open_bytes += size

    def tokens(self, uids: Slots, ids: Ints, indices: Slots) -> None:
        """One token for each uid."""
        batch = self._last()
        if batch.tokens is not None:
            batch = self._next()
        batch.tokens = (uids, ids, indices)

    def end(self, message: m.End) -> None:
        """The last word on a request."""
        self._last().ends.append(message)

    def take(self) -> list[tuple[int, m.Tokens]]:
        """(detokenizer, message) pairs, to be sent in this order; the outbox is empty afterwards."""
        batches, self._batches = self._batches, []
        return [pair for batch in batches for pair in self._split(batch)]

    def _last(self) -> _Batch:
        return self._batches[-1] if self._batches else self._next()

    def _next(self) -> _Batch:
        self._batches.append(_Batch())
        return self._batches[-1]

    def _split(self, batch: _Batch) -> list[tuple[int, m.Tokens]]:
        if self._detokenizers == 1:
            return [(0, _message(batch.opens, batch.tokens, batch.ends))]
        pairs = []
        for index in range(self._detokenizers):
            opens = [message for message in batch.opens if message.uid % self._detokenizers == index]
            ends = [message for message in batch.ends if message.uid % self._detokenizers == index]
            tokens = self._share(batch.tokens, index)
            if opens or ends or tokens is not None:
                pairs.append((index, _message(opens, tokens, ends)))
        return pairs

    def _share(
        self, tokens: tuple[Slots, Ints, Slots] | None, index: int
    ) -> tuple[Slots, Ints, Slots] | None:
        if tokens is None:
            return None
        uids, ids, indices = tokens
        mine: npt.NDArray[np.bool_] = uids % self._detokenizers == index
        return (uids[mine], ids[mine], indices[mine]) if mine.any() else None


def _message(opens: list[m.Open], tokens: tuple[Slots, Ints, Slots] | None, ends: list[m.End]) -> m.Tokens:
    if tokens is None:
        return m.Tokens(opens, ends=ends)
    uids, ids, indices = tokens
    return m.Tokens(opens, uids.tobytes(), ids.tobytes(), indices.astype(np.int32).tobytes(), ends)
