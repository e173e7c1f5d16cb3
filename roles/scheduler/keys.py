"""Names for pages below the device: what a whole page holds follows from all tokens up to its end.

The key of a page is a chained hash, as in vLLM's prefix cache: of the key of the page before it, which for
the first page is the hash of the salt, and of the page's own tokens. So equal keys mean equal prefixes, in
this run and in any other, and nobody can ask for a page of another salt.
"""

from __future__ import annotations

from hashlib import blake2b

from stretto.roles.scheduler.pages import Ints

KEY_BYTES = 16
"""128 bits: among 10^12 pages the chance that any two agree is 10^-15."""


class Chain:
    """The keys of a sequence's pages: each is made once, about a microsecond, for a sequence only grows."""

    __slots__ = ("_keys", "_last", "salt")

    def __init__(self, salt: str = "") -> None:
        self.salt = salt
        self._keys: list[bytes] = []
        self._last = blake2b(salt.encode(), digest_size=KEY_BYTES).digest()

    def of(self, tokens: Ints, page_size: int) -> list[bytes]:
        """The keys of the whole pages that `tokens` fill: those the sequence begins with, always the same."""
        count, known = len(tokens) // page_size, len(self._keys)
        if known < count:
            self._extend(tokens[known * page_size : count * page_size].tobytes(), 4 * page_size)
        return self._keys[:count]

    def _extend(self, data: bytes, width: int) -> None:
        key = self._last
        for start in range(0, len(data), width):
            key = blake2b(key + data[start : start + width], digest_size=KEY_BYTES).digest()
            self._keys.append(key)
        self._last = key


def page_keys(tokens: Ints, page_size: int, salt: str) -> list[bytes]:
    """The keys of the whole pages that `tokens`, int32, fill."""
    return Chain(salt).of(tokens, page_size)


def split_keys(data: bytes) -> list[bytes]:
    """The keys of a message's uint8[n, 16] buffer."""
    return [data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)]
