from __future__ import annotations

import json
from pathlib import Path

import pytest

from stretto.roles.executor.weights import layout
from stretto.roles.executor.weights.errors import ModelError


def touch(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).touch()


def names(directory: Path) -> list[str]:
    return [file.name for file in layout.weight_files(directory)]


def test_the_index_decides_which_files_hold_the_weights(tmp_path: Path) -> None:
    touch(tmp_path, "b.safetensors", "a.safetensors", "adapter.safetensors", "model.safetensors")
    (tmp_path / layout.INDEX).write_text(
        json.dumps({"weight_map": {"x": "b.safetensors", "y": "a.safetensors"}})
    )
    assert names(tmp_path) == ["a.safetensors", "b.safetensors"]


def test_without_an_index_one_file_or_all_but_the_consolidated(tmp_path: Path) -> None:
    touch(tmp_path, "model-1.safetensors", "model-2.safetensors", "consolidated.safetensors")
    assert names(tmp_path) == ["model-1.safetensors", "model-2.safetensors"]
    touch(tmp_path, "model.safetensors")
    assert names(tmp_path) == ["model.safetensors"]


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / layout.INDEX).write_text(json.dumps({"weight_map": {"x": "b.safetensors"}}))
    with pytest.raises(ModelError, match=r"b\.safetensors is missing"):
        layout.weight_files(tmp_path)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "config.json", "pytorch_model.bin")
    with pytest.raises(ModelError, match="can run code"):
        layout.check_model(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 1}'])
def test_a_broken_index_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / layout.INDEX).write_text(content)
    with pytest.raises(ModelError, match=r"index\.json"):
        layout.weight_files(tmp_path)


def test_an_incomplete_directory_has_no_model(tmp_path: Path) -> None:
    touch(tmp_path, "model.safetensors")
    assert not layout.has_model(tmp_path)
    touch(tmp_path, "config.json")
    assert layout.has_model(tmp_path)
    assert not layout.has_tokenizer(tmp_path)
