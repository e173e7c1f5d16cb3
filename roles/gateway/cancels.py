"""Cancels whose end has not been heard of: a process that dies may take them with it."""

from __future__ import annotations

from collections.abc import Iterator

MOST = 16_384
"""Kept at most, the latest: that of a sequence which had ended already is never confirmed."""


class Cancels:
    """Uids that were cancelled, and the tokenizers that were told, until a terminal message confirms them."""

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def add(self, uid: int, tokenizer: int) -> None:
        """One was sent; the oldest is forgotten where there are too many."""
        self._sent.pop(uid, None)
        self._sent[uid] = tokenizer
        if len(self._sent) > MOST:
            del self._sent[next(iter(self._sent))]

    def confirm(self, uid: int) -> None:
        """Its end has come."""
        self._sent.pop(uid, None)

    def lost(self, role: str, index: int) -> Iterator[tuple[int, int]]:
        """(uid, tokenizer) of those that this dead process may have had; a scheduler had all."""
        for uid, tokenizer in self._sent.items():
            if role == "scheduler" or (role == "tokenizer" and tokenizer == index):
                yield uid, tokenizer
