from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from stretto.roles.executor.weights import sources
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.gguf_file import GGUFFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("strings", ["a", "", "ü"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_float32("float", 0.5)
    writer.add_bool("yes", True)
    writer.add_uint64("big", 2**40)
    writer.add_tensor("matrix", np.arange(6, dtype=np.float32).reshape(2, 3))
    blocks = gguf.quants.quantize(np.ones((3, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blocks", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_of_every_kind(path: Path) -> None:
    metadata = GGUFFile(path).metadata
    assert metadata["strings"] == ["a", "", "ü"]
    assert metadata["numbers"].tolist() == [1, -2, 3]
    assert (metadata["float"], metadata["yes"], metadata["big"]) == (0.5, True, 2**40)
    assert metadata["general.architecture"] == "llama"


def test_tensors_are_rows_of_stored_bytes(path: Path) -> None:
    file = GGUFFile(path)
    matrix, blocks = file.tensors["matrix"], file.tensors["blocks"]
    assert matrix.shape == (2, 3)
    assert file.rows(matrix).view(np.float32).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (blocks.shape, blocks.rows, blocks.row_bytes) == ((3, 64), 3, 68)


def test_it_reads_the_embedded_model_as_the_gguf_package_does() -> None:
    path = sources.embedded_file()
    file, reader = GGUFFile(path), gguf.GGUFReader(path)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            value = file.metadata[key]
            assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents()
    for tensor in reader.tensors:
        info = file.tensors[tensor.name]
        assert info.shape == tuple(reversed(tensor.shape.tolist()))
        assert (info.type, info.offset) == (tensor.tensor_type, tensor.data_offset)


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    whole, last = path.read_bytes(), GGUFFile(path).tensors["blocks"]
    end = last.offset + last.rows * last.row_bytes
    for size in (*range(1, end, 13), end - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"damaged or cut short|is not a GGUF file"):
            GGUFFile(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot read"),
        (b"PK\3\4" + bytes(100), "is not a GGUF file"),
        (b"<html>", "is not a GGUF file"),
        (b"GGUF\0\0\0\3" + bytes(100), "version 50331648"),
        (b"GGUF\3\0\0\0" + b"\xff" * 100, "damaged"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=words):
        GGUFFile(path)
