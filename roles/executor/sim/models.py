"""The models that can be simulated by name, and what their shapes say of memory.

Shapes are those of the `config.json` that each model was published with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.sim.gpus import GPU
from stretto.roles.executor.weights.model_config import ModelConfig, load_model_config, parse

ITEM_BYTES = 2
"""Of a weight, and of a number in the KV pool unless that is fp8: bfloat16."""


def _shape(
    family: str,
    hidden: int,
    inner: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocabulary: int,
    context: int,
    **more: Any,
) -> dict[str, Any]:
    return {
        "architectures": [f"{family}ForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
        "sliding_window": None,
        "dtype": "bfloat16",
        **more,
    }


_TIED = {"tie_word_embeddings": True}

SHAPES = {
    "llama-3-8b": _shape("Llama", 4096, 14336, 32, 32, 8, 128256, 8192),
    "llama-3-70b": _shape("Llama", 8192, 28672, 80, 64, 8, 128256, 8192),
    "llama-3.1-8b": _shape("Llama", 4096, 14336, 32, 32, 8, 128256, 131072),
    "llama-3.2-1b": _shape("Llama", 2048, 8192, 16, 32, 8, 128256, 131072, **_TIED),
    "llama-3.2-3b": _shape("Llama", 3072, 8192, 28, 24, 8, 128256, 131072, **_TIED),
    "mistral-7b": _shape("Mistral", 4096, 14336, 32, 32, 8, 32768, 32768),
    "qwen2.5-7b": _shape("Qwen2", 3584, 18944, 28, 28, 4, 152064, 32768),
    "qwen2.5-14b": _shape("Qwen2", 5120, 13824, 48, 40, 8, 152064, 32768),
    "qwen2.5-32b": _shape("Qwen2", 5120, 27648, 64, 40, 8, 152064, 32768),
    "qwen3-4b": _shape("Qwen3", 2560, 9728, 36, 32, 8, 151936, 40960, **_TIED),
    "qwen3-8b": _shape("Qwen3", 4096, 12288, 36, 32, 8, 151936, 40960),
    "qwen3-14b": _shape("Qwen3", 5120, 17408, 40, 40, 8, 151936, 40960),
    "qwen3-32b": _shape("Qwen3", 5120, 25600, 64, 64, 8, 151936, 40960),
    "smollm2-135m": _shape("Llama", 576, 1536, 30, 9, 3, 49152, 8192, **_TIED),
}


def simulated_model(name: str) -> ModelConfig:
    """The configuration of that name, or of that `config.json` or directory with one.

    Raises `ConfigError` for a name that is neither, `ModelError` for a file that is no configuration.
    """
    if name in SHAPES:
        return parse(SHAPES[name], {})
    path = Path(name)
    if path.is_file() or path.is_dir():
        return load_model_config(path if path.is_dir() else path.parent)
    raise ConfigError(f"no model {name!r} to simulate: give a config.json or one of {', '.join(SHAPES)}")


class Parameters(NamedTuple):
    """How many numbers a model has, by what a step reads of them."""

    embedding: int
    """A step reads one row of it for each token."""
    layers: int
    """All layers and the last norm: every step reads them."""
    head: int
    """The output projection, read by a step that samples; the embedding itself where the two are tied."""
    tied: bool

    @property
    def total(self) -> int:
        """Numbers that are stored."""
        return self.embedding + self.layers + (0 if self.tied else self.head)


def parameters(config: ModelConfig) -> Parameters:
    """Count a model's parameters."""
    hidden, query = config.hidden_size, config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    attention = hidden * (query + 2 * keys) + query * hidden
    attention += (query + 2 * keys) * config.attention_bias + hidden * config.attention_output_bias
    norms = 2 * hidden + 2 * config.head_dim * config.qk_norm
    layer = attention + 3 * hidden * config.intermediate_size + norms
    vocabulary = config.vocab_size * hidden
    return Parameters(vocabulary, config.num_layers * layer + hidden, vocabulary, config.tie_word_embeddings)


def weight_bytes(config: ModelConfig) -> int:
    """Memory of the weights."""
    return parameters(config).total * ITEM_BYTES


def kv_bytes(config: ModelConfig, item_bytes: int = ITEM_BYTES) -> int:
    """Memory of one token's keys and values in all layers, so many bytes a number."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * item_bytes


def room(gpu: GPU, config: ModelConfig) -> int:
    """Bytes of a GPU that the weights leave. Raises ConfigError when there are none."""
    weights = weight_bytes(config)
    if weights >= gpu.memory:
        raise ConfigError(
            f"the weights take {weights / 1e9:.1f} GB and the GPU has {gpu.memory / 1e9:.0f} GB; "
            "choose a larger GPU or a smaller model"
        )
    return int(gpu.memory) - weights
