from pathlib import Path
from typing import Any

import pytest
import torch

from stretto.roles.executor.models.rotary import rotary_table
from stretto.roles.executor.weights.model_config import load_model_config

SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 10000.0},
    {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling["rope_type"])
def test_angles_have_the_bits_of_transformers(scaling: dict[str, Any], make_tiny: Any) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    path: Path = make_tiny(rope_parameters=scaling)
    table = rotary_table(load_model_config(path), 200, torch.device("cpu"))
    rotary = LlamaRotaryEmbedding(LlamaConfig.from_pretrained(path))
    cos, sin = rotary(torch.zeros(1), torch.arange(200)[None])
    half = table.shape[1] // 2
    assert (table.dtype, table.shape) == (torch.float32, (200, 16))
    assert torch.equal(table[:, :half], cos[0, :, :half])
    assert torch.equal(table[:, half:], sin[0, :, :half])
