"""The models the executor can run, by the architecture that a `config.json` names."""

from __future__ import annotations

from collections.abc import Callable

from stretto.roles.executor.models.interface import Model
from stretto.roles.executor.models.llama import Llama
from stretto.roles.executor.models.loader import Loader
from stretto.roles.executor.models.scripted import Scripted
from stretto.roles.executor.weights.model_config import ModelConfig

MODELS: dict[str, Callable[[ModelConfig, Loader, int], Model]] = {
    "LlamaForCausalLM": Llama,
    "MistralForCausalLM": Llama,
    "Qwen2ForCausalLM": Llama,
    "Qwen3ForCausalLM": Llama,
    "ScriptedForCausalLM": Scripted,
}


def build_model(config: ModelConfig, load: Loader, max_len: int) -> Model:
    """Load the model for sequences of up to `max_len` tokens."""
    return MODELS[config.architecture](config, load, max_len)


def has_layers(config: ModelConfig) -> bool:
    """Whether the model computes anything."""
    return MODELS[config.architecture] is not Scripted
