import json
from pathlib import Path

import pytest

from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.sim.models import SHAPES, kv_bytes, parameters, simulated_model, weight_bytes

PUBLISHED = {
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_248_023_552,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "smollm2-135m": 134_515_008,
}
"""What the safetensors of these models hold, as their model cards say."""


def test_every_model_has_the_parameters_that_were_published() -> None:
    assert {name: parameters(simulated_model(name)).total for name in SHAPES} == PUBLISHED


def test_memory_of_llama_3_8b() -> None:
    model = simulated_model("llama-3-8b")
    assert weight_bytes(model) == 16_060_522_496
    assert kv_bytes(model) == 131_072
    assert kv_bytes(model, item_bytes=1) == 65_536


def test_a_config_file_or_its_directory_will_do(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SHAPES["qwen3-4b"]))
    assert simulated_model(str(path)) == simulated_model(str(tmp_path)) == simulated_model("qwen3-4b")


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"no model 'gpt-5' to simulate: .* llama-3-8b,"):
        simulated_model("gpt-5")
