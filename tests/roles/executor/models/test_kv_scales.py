from typing import Any

import pytest
import torch

from stretto.roles.executor.models.kv_scales import read_scales
from stretto.roles.executor.weights.errors import ModelError

LAYER = "model.layers.3.self_attn"


def read(**stored: Any) -> Any:
    """Scales of a layer with two KV heads; names with __ for a dot."""
    tensors = {f"{LAYER}.{name.replace('__', '.')}": torch.as_tensor(value) for name, value in stored.items()}
    keys, values = read_scales(tensors, tensors.__getitem__, LAYER, 2)
    assert keys is not None
    assert values is not None
    assert keys.dtype is values.dtype is torch.float32
    return [keys.tolist(), values.tolist()]


def test_without_any_they_are_one() -> None:
    assert read() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    "stored",
    [
        {"k_scale": 0.5, "v_scale": [0.25]},
        {"k_scale": torch.tensor(0.5).bfloat16(), "v_scale": torch.tensor([0.25]).half()},
        {"k_proj__k_scale": [0.5], "v_proj__v_scale": 0.25},
        {"k_proj__output_scale": 0.5, "v_proj__output_scale": 0.25, "q_proj__output_scale": 7.0},
    ],
)
def test_one_number_serves_all_heads_by_each_of_its_names(stored: Any) -> None:
    assert read(**stored) == [[0.5, 0.5], [0.25, 0.25]]


def test_a_single_scale_is_that_of_keys_and_of_values() -> None:
    assert read(kv_scale=0.5) == [[0.5, 0.5], [0.5, 0.5]]


def test_every_head_may_have_its_own() -> None:
    assert read(k_scale=[[[0.5]], [[2.0]]], v_scale=[0.25, 4.0]) == [[0.5, 2.0], [0.25, 4.0]]


def test_another_number_of_heads_is_refused() -> None:
    with pytest.raises(ModelError, match=r"k_scale has 3 numbers, but there are 2 KV heads"):
        read(k_scale=[1.0, 2.0, 3.0])


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_what_nothing_can_be_divided_by_is_refused(value: float) -> None:
    with pytest.raises(ModelError, match="a scale is a positive number"):
        read(v_scale=value)
