from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from stretto.kernels.linear import stepped
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.layout import STEPS
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


def test_a_matrix_is_there_as_steps_where_it_is_stored_so(tmp_path: Path) -> None:
    save_file({"m": torch.zeros(2, 32), "n": torch.zeros(2, 32)}, tmp_path / "model.safetensors")
    tables = {"m.scales": torch.ones(2, 1).half(), "m.minima": torch.full((2, 1), -3.0).half()}
    save_file({"m.words": torch.full((2, 4), 0x11111111, dtype=torch.int32)} | tables, tmp_path / STEPS)
    weights = Weights(tmp_path)
    steps = weights.steps("m")
    assert steps is not None
    assert stepped.weights(steps).tolist() == [[-2.0] * 32] * 2
    assert weights.steps("n") is None
    assert weights.names() == {"m", "n"}


def test_steps_are_no_weights_by_themselves(tmp_path: Path) -> None:
    save_file({"a": A}, tmp_path / "weights.safetensors")
    save_file({"a.words": A}, tmp_path / STEPS)
    assert Weights(tmp_path).names() == {"a"}
