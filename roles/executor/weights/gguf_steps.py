"""The blocks of GGUF's quantisation types as what they all are: steps, with scales and minima.

A weight is scale * step + minimum. Products of scales and steps have at most 24 significant bits, so that the
sum is rounded once, in whatever way it is computed: it equals `gguf.quants.dequantize` to the bit. The layout
of the blocks is ggml's (ggml-common.h).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

Q = GGMLQuantizationType
Half, Single = np.dtype(np.float16), np.dtype(np.float32)


class Steps(NamedTuple):
    """Rows of a matrix: steps uint8 [rows, K], scales and minima float32 [rows, K / group]."""

    steps: np.ndarray
    scales: np.ndarray
    minima: np.ndarray

    def values(self) -> np.ndarray:
        """The weights as float32 [rows, K]."""
        rows, groups = self.scales.shape
        grouped = self.steps.reshape(rows, groups, -1).astype(Single)
        grouped *= self.scales[:, :, None]
        grouped += self.minima[:, :, None]
        return grouped.reshape(rows, -1)


Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Of blocks: steps [blocks, weights], scales and minima float32 [blocks, groups]."""


class Kind(NamedTuple):
    """What is to know of a type."""

    bits: int
    """That a step is kept in."""
    group: int
    """Weights that share a scale."""
    table: np.dtype
    """That holds scales and minima exactly."""
    read: Callable[[np.ndarray], Parts]
    """From blocks, uint8 [blocks, bytes]."""


def read_steps(rows: np.ndarray, kind: GGMLQuantizationType) -> Steps:
    """Stored rows, uint8 [rows, row bytes], of one of `KINDS`."""
    parts = KINDS[kind].read(rows.reshape(-1, GGML_QUANT_SIZES[kind][1]))
    return Steps(*(part.reshape(len(rows), -1) for part in parts))


def pack_words(steps: np.ndarray, bits: int) -> np.ndarray:
    """int32 [rows, K * bits / 32], the first step of a word in its lowest bits."""
    if bits == 4:
        steps = steps[:, 0::2] | (steps[:, 1::2] << 4)
    return np.ascontiguousarray(steps).view("<i4")


def _half(block: np.ndarray, at: int) -> np.ndarray:
    """The float16 at that byte of each block, as float32 [blocks, 1]."""
    return np.ascontiguousarray(block[:, at : at + 2]).view(Half).astype(Single)


def _nibbles(stored: np.ndarray) -> np.ndarray:
    """All low halves, then all high halves."""
    return np.concatenate([stored & 15, stored >> 4], axis=1)


def _fifth_bits(stored: np.ndarray) -> np.ndarray:
    """Bits of uint8 [blocks, 4], in order, as 16 or 0."""
    return np.unpackbits(stored, axis=1, bitorder="little") << 4


def _q4_0(b: np.ndarray) -> Parts:
    scale = _half(b, 0)
    return _nibbles(b[:, 2:]), scale, -8 * scale


def _q4_1(b: np.ndarray) -> Parts:
    return _nibbles(b[:, 4:]), _half(b, 0), _half(b, 2)


def _q5_0(b: np.ndarray) -> Parts:
    scale = _half(b, 0)
    return _nibbles(b[:, 6:]) | _fifth_bits(b[:, 2:6]), scale, -16 * scale


def _q5_1(b: np.ndarray) -> Parts:
    return _nibbles(b[:, 8:]) | _fifth_bits(b[:, 4:8]), _half(b, 0), _half(b, 2)


def _q8_0(b: np.ndarray) -> Parts:
    scale = _half(b, 0)
    return b[:, 2:] ^ 128, scale, -128 * scale


def _q4_k(b: np.ndarray) -> Parts:
    return _halves_by_32(b[:, 16:]), *_small_scales(b)


def _q5_k(b: np.ndarray) -> Parts:
    high = np.unpackbits(b[:, 16:48, None], axis=2, bitorder="little").swapaxes(1, 2)
    return _halves_by_32(b[:, 48:]) | (high.reshape(len(b), -1) << 4), *_small_scales(b)


def _q6_k(b: np.ndarray) -> Parts:
    low, high = b[:, :128].reshape(-1, 2, 64), b[:, 128:192].reshape(-1, 2, 1, 32)
    low = np.concatenate([low & 15, low >> 4], axis=2)
    high = (high >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    steps = low.reshape(len(b), -1) | (high.reshape(len(b), -1) << 4)
    scale = _half(b, 208) * b[:, 192:208].view(np.int8).astype(Single)
    return steps, scale, -32 * scale


def _halves_by_32(stored: np.ndarray) -> np.ndarray:
    """Of every 32 bytes the low halves, then the high halves."""
    parts = stored.reshape(len(stored), -1, 32)
    return np.concatenate([parts & 15, parts >> 4], axis=2).reshape(len(stored), -1)


def _small_scales(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and minima of eight groups, of 6 bits each in 12 bytes."""
    first, second, rest = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scales = np.concatenate([first & 63, (rest & 15) | ((first >> 2) & 48)], axis=1)
    minima = np.concatenate([second & 63, (rest >> 4) | ((second >> 2) & 48)], axis=1)
    return _half(b, 0) * scales.astype(Single), -_half(b, 2) * minima.astype(Single)


KINDS = {
    Q.Q4_0: Kind(4, 32, Half, _q4_0),
    Q.Q4_1: Kind(4, 32, Half, _q4_1),
    Q.Q5_0: Kind(8, 32, Half, _q5_0),
    Q.Q5_1: Kind(8, 32, Half, _q5_1),
    Q.Q8_0: Kind(8, 32, Half, _q8_0),
    Q.Q4_K: Kind(4, 32, Single, _q4_k),
    Q.Q5_K: Kind(8, 32, Single, _q5_k),
    Q.Q6_K: Kind(8, 16, Single, _q6_k),
}
"""The types whose blocks are steps."""
