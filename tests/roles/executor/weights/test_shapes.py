from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stretto.roles.executor.weights import model_config
from stretto.roles.executor.weights.shapes import expected_shapes


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("LlamaForCausalLM", {"tie_word_embeddings": True}),
        ("LlamaForCausalLM", {"attention_bias": True}),
        ("MistralForCausalLM", {"head_dim": 32}),
        ("Qwen2ForCausalLM", {"num_key_value_heads": 4}),
        ("Qwen3ForCausalLM", {}),
    ],
)
def test_they_are_those_of_transformers(
    tiny: Callable[..., Any], architecture: str, changes: dict[str, Any]
) -> None:
    model = tiny(architecture, **changes)
    config = model_config.parse({**model.config.to_dict(), "architectures": [architecture]}, {})
    theirs = {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}
    assert expected_shapes(config) == theirs
