from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.safetensors_dir import Weights

A, B = torch.arange(6, dtype=torch.float16).reshape(2, 3), torch.ones(4, dtype=torch.bfloat16)


def shard(model_dir: Path) -> None:
    save_file({"a": A}, model_dir / "model-00001-of-00002.safetensors")
    save_file({"b": B}, model_dir / "model-00002-of-00002.safetensors")
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def test_tensors_of_all_shards_by_name_in_their_stored_type(tmp_path: Path) -> None:
    shard(tmp_path)
    weights = Weights(tmp_path)
    assert weights.names() == {"a", "b"}
    assert torch.equal(weights.get("a"), A)
    assert weights.get("b").dtype == torch.bfloat16


def test_a_tensor_is_mapped_not_copied(tmp_path: Path) -> None:
    save_file({"a": A}, tmp_path / "model.safetensors")
    weights = Weights(tmp_path)
    assert weights.get("a").data_ptr() == weights.get("a").data_ptr()


def test_views_outlive_close(tmp_path: Path) -> None:
    save_file({"a": A}, tmp_path / "model.safetensors")
    weights = Weights(tmp_path)
    view = weights.get("a")
    weights.close()
    assert torch.equal(view, A)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    save_file({"a": A}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="no tensor 'z'"):
        Weights(tmp_path).get("z")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    shard(tmp_path)
    path = tmp_path / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"model-00002-of-00002\.safetensors is damaged"):
        Weights(tmp_path)
