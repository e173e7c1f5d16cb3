from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from stretto.roles.executor.weights.gguf_steps import KINDS, pack_words, read_steps

SCALES_AT = {Type.Q4_1: (0, 2), Type.Q5_1: (0, 2), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,)}
"""Bytes at which a block has float16 numbers, where it is not only at 0."""


def any_rows(kind: Type, rows: int = 40, blocks: int = 3) -> np.ndarray:
    """Stored rows of random bytes, but for scales, which are any numbers."""
    rng, size = np.random.default_rng(7), gguf.GGML_QUANT_SIZES[kind][1]
    stored = rng.integers(0, 256, (rows * blocks, size), dtype=np.uint8)
    for at in SCALES_AT.get(kind, (0,)):
        scales = rng.normal(0, 0.01, (len(stored), 1)).astype(np.float16)
        stored[:, at : at + 2] = scales.view(np.uint8)
    return stored.reshape(rows, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_what_the_gguf_package_reads_to_the_bit(kind: Type) -> None:
    rows = any_rows(kind)
    np.testing.assert_array_equal(read_steps(rows, kind).values(), gguf.quants.dequantize(rows, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_tables_fit_into_their_type_and_steps_into_their_bits(kind: Type) -> None:
    steps = read_steps(any_rows(kind), kind)
    for table in (steps.scales, steps.minima):
        np.testing.assert_array_equal(table.astype(KINDS[kind].table), table)
    assert steps.steps.max() < 2 ** KINDS[kind].bits
    assert steps.steps.shape[1] == steps.scales.shape[1] * KINDS[kind].group


def test_the_first_step_is_in_the_lowest_bits() -> None:
    nibbles = np.array([[1, 2, 3, 4, 5, 6, 7, 8]], np.uint8)
    assert pack_words(nibbles, 4).tolist() == [[-0x789ABCDF]]
    assert pack_words(nibbles, 8).tolist() == [[0x04030201, 0x08070605]]
