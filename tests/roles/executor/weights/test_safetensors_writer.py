from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from stretto.roles.executor.weights.safetensors_writer import Layout, SafetensorsWriter

F16, I32 = np.dtype(np.float16), np.dtype(np.int32)


def test_pieces_in_any_order_make_the_tensors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    values = np.arange(12, dtype=F16).reshape(4, 3)
    with SafetensorsWriter(path, {"a": Layout((4, 3), F16), "b": Layout((2,), I32)}) as writer:
        writer.write("b", 0, np.array([7, 8], I32))
        writer.write("a", 6, values[2:])
        writer.write("a", 0, values[:2])
    with safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt"}
        np.testing.assert_array_equal(file.get_tensor("a"), values)
        np.testing.assert_array_equal(file.get_tensor("b"), [7, 8])


def test_the_data_is_aligned(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with SafetensorsWriter(path, {"a name of odd length": Layout((1,), F16)}):
        pass
    assert int.from_bytes(path.read_bytes()[:8], "little") % 64 == 56


def test_only_the_declared_type_is_taken(tmp_path: Path) -> None:
    with SafetensorsWriter(tmp_path / "m", {"a": Layout((1,), F16)}) as writer, pytest.raises(AssertionError):
        writer.write("a", 0, np.zeros(1, np.float32))
