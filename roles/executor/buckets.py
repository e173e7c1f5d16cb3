"""The sizes that steps of decodes are padded to, so that a few graphs serve all of them."""

from __future__ import annotations

MOST = 512
"""Decodes of a step that may be replayed. With more, launching the kernels one by one costs a small share."""

WIDTH = 64
"""Pages of the narrowest block tables; wider ones are four times as wide, and so on: attention looks up how
long a sequence is, so room that is not used costs it next to nothing."""


def bucket_of(decodes: int) -> int:
    """So many decodes are padded to: 1, 2, 4, 8, 16, 24 ... 256, 288, 320 ... 512."""
    if decodes <= 8:
        return 1 << (decodes - 1).bit_length()
    step = 8 if decodes <= 256 else 32
    return -(-decodes // step) * step


def width_of(pages: int, most: int) -> int:
    """Columns of block tables whose longest sequence has so many pages; `most`: columns that there are."""
    width = WIDTH
    while width < pages:
        width *= 4
    return min(width, most)
