"""Reads the GGUF container: metadata and the table of tensors.

The format is llama.cpp's (docs/gguf.md in ggml): a header, typed key-value pairs, a table of tensors, then
their aligned data. `gguf.GGUFReader` makes several numpy views per array element and takes 1.9 s for a
vocabulary of 49,152 tokens and its merges; this reader takes 0.04 s.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from stretto.roles.executor.weights.errors import ModelError

_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
"""numpy types of the fixed-size value types, by their number in the file."""
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)


class TensorInfo(NamedTuple):
    """Where a tensor lies and how it is stored."""

    name: str
    shape: tuple[int, ...]
    """Logical shape, slowest dimension first (the file has it the other way round)."""
    type: GGMLQuantizationType
    offset: int
    """Bytes from the start of the file."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one row (the last dimension), which is a whole number of quantisation blocks."""
        block, size = GGML_QUANT_SIZES[self.type]
        return self.shape[-1] // block * size

    @property
    def rows(self) -> int:
        """Number of rows; 1 for a vector."""
        return math.prod(self.shape[:-1])


class GGUFFile:
    """An open, mapped GGUF file of version 2 or 3, little-endian.

    `metadata` maps keys to Python scalars, strings and lists of strings, or numpy arrays of numbers.
    `tensors` maps names to `TensorInfo`, in file order. Raises `ModelError` for anything else than a whole,
    sound file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _map(path)
        try:
            self._parse()
        except (struct.error, ValueError, OverflowError, RecursionError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from None

    def rows(self, tensor: TensorInfo) -> np.ndarray:
        """The tensor's stored bytes as uint8[rows, row_bytes], a view of the file."""
        count = tensor.rows * tensor.row_bytes
        return np.frombuffer(self._data, np.uint8, count, tensor.offset).reshape(
            tensor.rows, tensor.row_bytes
        )

    def _parse(self) -> None:
        if self._data[:4] != b"GGUF":
            raise ModelError(f"{self.path} is not a GGUF file")
        version, tensor_count, pair_count = struct.unpack_from("<IQQ", self._data, 4)
        if version not in _VERSIONS:
            raise ModelError(
                f"{self.path} is GGUF version {version}; versions 2 and 3, little-endian, are read"
            )
        self._at = 24
        self.metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            key = self._string()
            self.metadata[key] = self._value(self._unpack("<I"))
        table = [self._tensor_entry() for _ in range(tensor_count)]
        alignment = int(self.metadata.get("general.alignment", 32))
        if alignment < 1:
            raise ValueError(f"alignment {alignment}")
        start = -(-self._at // alignment) * alignment
        self.tensors = {name: self._placed(name, shape, kind, start + at) for name, shape, kind, at in table}

    def _unpack(self, format: str) -> Any:
        (value,) = struct.unpack_from(format, self._data, self._at)
        self._at += struct.calcsize(format)
        return value

    def _string(self) -> str:
        end = self._unpack("<Q") + self._at
        if end > len(self._data):
            raise ValueError("a string goes beyond the end of the file")
        text = self._data[self._at : end].decode()
        self._at = end
        return text

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise ValueError(f"unknown value type {kind}")
        return self._numbers(kind, 1)[0].item()

    def _array(self) -> Any:
        kind, count = self._unpack("<I"), self._unpack("<Q")
        if kind == _STRING:
            return [self._string() for _ in range(count)]
        if kind == _ARRAY:
            return [self._array() for _ in range(count)]
        if kind not in _SCALARS:
            raise ValueError(f"unknown array type {kind}")
        return self._numbers(kind, count)

    def _numbers(self, kind: int, count: int) -> np.ndarray:
        values = np.frombuffer(self._data, _SCALARS[kind], count, self._at)
        self._at += values.nbytes
        return values

    def _tensor_entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._string(), self._unpack("<I")
        shape = tuple(self._unpack("<Q") for _ in range(dimensions))
        return name, shape[::-1], self._unpack("<I"), self._unpack("<Q")

    def _placed(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> TensorInfo:
        try:
            tensor = TensorInfo(name, shape, GGMLQuantizationType(kind), offset)
        except ValueError:
            raise ModelError(
                f"{self.path}: tensor {name} has the unknown type {kind}; a newer gguf package may know it"
            ) from None
        if not shape or shape[-1] % GGML_QUANT_SIZES[tensor.type][0]:
            raise ValueError(f"tensor {name} of shape {shape} is not whole {tensor.type.name} blocks")
        if offset + tensor.rows * tensor.row_bytes > len(self._data):
            raise ValueError(f"tensor {name} goes beyond the end of the file")
        return tensor

    def _damaged(self, reason: str) -> ModelError:
        return ModelError(f"{self.path} is damaged or cut short ({reason}); fetch it again")


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from None
