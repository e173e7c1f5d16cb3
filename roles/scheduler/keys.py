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


def page_keys(tokens: Ints, page_size: int, salt: str) -> list[bytes]:
    """The keys of the whole pages that `tokens` fill, about a microsecond each."""
    data, width = tokens.tobytes(), page_size * tokens.itemsize
    key, keys = blake2b(salt.encode(), digest_size=KEY_BYTES).digest(), []
    for start in range(0, len(data) - width + 1, width):
        key = blake2b(key + data[start : start + width], digest_size=KEY_BYTES).digest()
        keys.append(key)
    return keys


def split_keys(data: bytes) -> list[bytes]:
    """The keys of a message's uint8[n, 16] buffer."""
    return [data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)]


class LastKeys:
    """`page_keys`, without work for the sequence that was asked about last: a queue's head is asked about
    at each step until there is room for it.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._tokens: Ints | None = None
        self._salt = ""
        self._keys: list[bytes] = []

    def __call__(self, tokens: Ints, salt: str) -> list[bytes]:
        """`tokens` are not changed afterwards."""
        if self._tokens is not tokens or self._salt != salt:
            self._tokens, self._salt = tokens, salt
            self._keys = page_keys(tokens, self._page_size, salt)
        return self._keys
