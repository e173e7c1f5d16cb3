"""What the bytes of a KV page depend on besides its tokens, as 16 bytes.

Two launches share stored KV only where model, weights, arithmetic and layout are the same. Weights are known
by the names and sizes of their files and by samples of their contents: reading all of them would take as long
as loading the model, and other weights of the same shape differ everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

FORMAT = "stretto KV 2: pages, layers, (keys, values), tokens, heads, dimensions"
"""Changes with the layout, and with whatever changes the numbers that a model's layers compute."""
SAMPLES = 16
SAMPLE_BYTES = 1 << 16
"""Per file, evenly spread: its header is in the first."""


def fingerprint(files: Iterable[Path], facts: Iterable[object]) -> bytes:
    """Of a model's configuration and weight files, in any order, and of `facts` about how it is run."""
    state = blake2b(FORMAT.encode(), digest_size=16)
    for fact in facts:
        state.update(repr(fact).encode() + b"\0")
    for path in sorted(files, key=lambda path: path.name):
        size = path.stat().st_size
        state.update(f"{path.name} {size}\0".encode())
        with path.open("rb") as file:
            for sample in range(SAMPLES):
                file.seek(max(0, size - SAMPLE_BYTES) * sample // (SAMPLES - 1))
                state.update(file.read(SAMPLE_BYTES))
    return state.digest()
