"""Writes one safetensors file piece by piece, so that no more than a piece is ever in memory."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

_CODES = {np.dtype(np.float16): "F16", np.dtype(np.float32): "F32", np.dtype(np.int32): "I32"}
_ALIGNMENT = 64
"""Bytes to which the data is aligned within the file, so that mapped tensors are too."""


class Layout(NamedTuple):
    """A tensor to be written: float16, float32 or int32."""

    shape: tuple[int, ...]
    dtype: np.dtype


class SafetensorsWriter:
    """A file of tensors whose names, shapes and types are known up front.

    `write` may be called from several threads, in any order. Leaving the context flushes to the disk.
    Format: github.com/huggingface/safetensors, "Format".
    """

    def __init__(self, path: Path, layouts: Mapping[str, Layout]) -> None:
        self._layouts = layouts
        self._offsets: dict[str, int] = {}
        entries, end = {}, 0
        for name, (shape, dtype) in layouts.items():
            start, end = end, end + math.prod(shape) * dtype.itemsize
            self._offsets[name] = start
            entries[name] = {"dtype": _CODES[dtype], "shape": shape, "data_offsets": (start, end)}
        header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
        header += b" " * (-(8 + len(header)) % _ALIGNMENT)
        self._data_start = 8 + len(header)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self._put(struct.pack("<Q", len(header)) + header, 0)

    def write(self, name: str, start: int, values: np.ndarray) -> None:
        """Store `values` as the elements [start, start + values.size) of tensor `name`, row-major."""
        assert values.dtype == self._layouts[name].dtype
        at = self._data_start + self._offsets[name] + start * values.itemsize
        self._put(np.ascontiguousarray(values).data.cast("B"), at)

    def _put(self, data: bytes | memoryview, at: int) -> None:
        left = memoryview(data)
        while left:
            written = os.pwrite(self._fd, left, at)
            left, at = left[written:], at + written

    def __enter__(self) -> SafetensorsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            os.fsync(self._fd)
        os.close(self._fd)
