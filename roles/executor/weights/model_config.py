"""What a dense Llama-family model needs to know about itself, read from `config.json`.

Imports no torch, so that any process may ask. Reads both spellings of transformers: `rope_theta`,
`rope_scaling` and `torch_dtype` at the top level (version 4), `rope_parameters` and `dtype` (version 5).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from stretto.roles.executor.weights.errors import ModelError

SCRIPTED = "ScriptedForCausalLM"
ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", SCRIPTED)
_SCRIPTED_SHAPE = {
    "hidden_size": 1,
    "intermediate_size": 1,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
}
"""A scripted model has no network; it keeps one number per token as key and one as value."""


class RopeScaling(msgspec.Struct, frozen=True, kw_only=True):
    """How rotary frequencies are stretched for contexts longer than the first training's.

    `linear` divides every frequency by `factor` (Chen et al., arXiv:2306.15595). `llama3` divides the low
    ones, keeps the high ones and blends between, by wavelength against the original context length.
    """

    type: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder with grouped-query attention, rotary positions, RMS norms and a gated MLP."""

    architecture: str
    """One of `ARCHITECTURES`."""
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    """Rows of the embedding, which may be more than the tokenizer has tokens."""
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_position_embeddings: int
    tie_word_embeddings: bool
    """True: the output projection is the embedding, and there is no `lm_head.weight`."""
    attention_bias: bool
    """The q, k and v projections have biases."""
    attention_output_bias: bool
    """The o projection has a bias."""
    qk_norm: bool
    """Queries and keys go through an RMS norm over the head before rotation (Qwen3)."""
    sliding_window: int | None
    """In the layers that have a window, a token sees itself and the `sliding_window - 1` tokens before it;
    None: all of them, in every layer."""
    window_layers: tuple[int, ...] = ()
    """The layers that have the window, ascending; empty where there is none."""
    eos_token_ids: tuple[int, ...]
    """Tokens that end an answer: those of generation_config.json, or else of config.json; may be empty."""
    hidden_act: str
    """Always "silu"."""
    dtype: Literal["float32", "float16", "bfloat16"]
    """The type the weights are stored in, as the config states it."""

    def window_of(self, layer: int) -> int:
        """The window of a layer, 0 for none."""
        return self.sliding_window or 0 if layer in self.window_layers else 0


def load_model_config(model_dir: str | Path) -> ModelConfig:
    """Read `config.json` and, where there is one, `generation_config.json`.

    Raises `ModelError` for a missing or broken file and for anything that this server does not implement:
    a result different from the model's own would be worse.
    """
    path = Path(model_dir) / "config.json"
    raw = _read_json(path)
    generation_path = path.with_name("generation_config.json")
    generation = _read_json(generation_path) if generation_path.exists() else {}
    try:
        return parse(raw, generation)
    except KeyError as error:
        raise ModelError(f"{path} lacks {error}; the file is incomplete, fetch the model again") from None
    except (TypeError, ValueError) as error:
        raise ModelError(f"{path} is not a valid model configuration: {error}") from None
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def parse(raw: dict[str, Any], generation: dict[str, Any]) -> ModelConfig:
    """The two parsed files as one `ModelConfig`; raises `ModelError`, KeyError, TypeError or ValueError."""
    architecture = _architecture(raw)
    if architecture == SCRIPTED:
        raw = raw | _SCRIPTED_SHAPE
    _refuse_unknown(raw)
    window, layers = _sliding_window(raw, architecture)
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    all_biases = bool(raw.get("attention_bias")) and architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM")
    return ModelConfig(
        architecture=architecture,
        hidden_size=int(raw["hidden_size"]),
        intermediate_size=int(raw["intermediate_size"]),
        num_layers=int(raw["num_hidden_layers"]),
        num_heads=int(raw["num_attention_heads"]),
        num_kv_heads=_kv_heads(raw, architecture),
        head_dim=_head_dim(raw, architecture),
        vocab_size=int(raw["vocab_size"]),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
        rope_scaling=_rope_scaling(rope),
        max_position_embeddings=int(raw["max_position_embeddings"]),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        attention_bias=all_biases or architecture == "Qwen2ForCausalLM",
        attention_output_bias=all_biases,
        qk_norm=architecture == "Qwen3ForCausalLM",
        sliding_window=window,
        window_layers=layers,
        eos_token_ids=_eos(generation) or _eos(raw),
        hidden_act=str(raw.get("hidden_act", "silu")),
        dtype=_dtype(raw),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist; a model directory needs it") from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"cannot read {path}: {error}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return value


def _architecture(raw: dict[str, Any]) -> str:
    named = raw.get("architectures") or [None]
    if named[0] not in ARCHITECTURES:
        raise ModelError(
            f"architecture {named[0]!r} is not supported; the supported ones are {', '.join(ARCHITECTURES)}"
        )
    return cast(str, named[0])


def _refuse_unknown(raw: dict[str, Any]) -> None:
    """Settings that change what the model computes and that this server does not implement."""
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"hidden_act {raw['hidden_act']!r} is not supported, only 'silu'")
    if raw.get("mlp_bias"):
        raise ModelError("mlp_bias is not supported")
    quantization = raw.get("quantization_config")
    if quantization and not _is_of_kv_alone(quantization):
        method = quantization.get("quant_method", "unknown")
        raise ModelError(
            f"weights quantised by {method!r} are not supported; use the original model or a GGUF file"
        )


def _is_of_kv_alone(quantization: dict[str, Any]) -> bool:
    """Whether the weights are whole, and the checkpoint only has scales for an fp8 KV cache, as
    compressed-tensors and ModelOpt state it.
    """
    scheme = quantization.get("kv_cache_scheme") or {}
    weights = quantization.get("config_groups") or quantization.get("quant_algo")
    return not weights and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8)


def _head_dim(raw: dict[str, Any], architecture: str) -> int:
    if raw.get("head_dim"):
        return int(raw["head_dim"])
    if architecture == "Qwen3ForCausalLM":
        return 128  # Qwen3Config's default, whatever the hidden size
    return int(raw["hidden_size"]) // int(raw["num_attention_heads"])


def _rope_scaling(rope: dict[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(type="linear", factor=float(rope["factor"]))
    if kind == "llama3":
        return RopeScaling(
            type="llama3",
            factor=float(rope["factor"]),
            low_freq_factor=float(rope["low_freq_factor"]),
            high_freq_factor=float(rope["high_freq_factor"]),
            original_max_position_embeddings=int(rope["original_max_position_embeddings"]),
        )
    raise ModelError(f"rope scaling of type {kind!r} is not supported, only 'linear' and 'llama3'")


def _sliding_window(raw: dict[str, Any], architecture: str) -> tuple[int | None, tuple[int, ...]]:
    """The window, and the layers that have it: all of Mistral's; Qwen has a switch, and names the layers or
    the first of them.
    """
    window = raw.get("sliding_window", 4096)  # transformers' default where the key is absent
    if architecture == "LlamaForCausalLM" or not window:
        return None, ()
    count = int(raw["num_hidden_layers"])
    if architecture == "MistralForCausalLM":
        return int(window), tuple(range(count))
    if not raw.get("use_sliding_window"):
        return None, ()
    kinds = raw.get("layer_types") or _qwen_layer_types(raw, count)
    if len(kinds) != count or set(kinds) - {"full_attention", "sliding_attention"}:
        raise ModelError(f"layer_types {kinds} are not supported, or not one for each of {count} layers")
    layers = tuple(layer for layer, kind in enumerate(kinds) if kind == "sliding_attention")
    return (int(window), layers) if layers else (None, ())


def _qwen_layer_types(raw: dict[str, Any], count: int) -> list[str]:
    first = int(raw.get("max_window_layers", 28))
    return ["sliding_attention" if layer >= first else "full_attention" for layer in range(count)]


def _kv_heads(raw: dict[str, Any], architecture: str) -> int:
    """Only Llama's default is "as many as heads"; the others' defaults fit one checkpoint each."""
    optional = architecture == "LlamaForCausalLM"
    heads = raw.get("num_key_value_heads") if optional else raw["num_key_value_heads"]
    return int(heads or raw["num_attention_heads"])


def _eos(raw: dict[str, Any]) -> tuple[int, ...]:
    value = raw.get("eos_token_id")
    if value is None:
        return ()
    return tuple(int(token) for token in value) if isinstance(value, list) else (int(value),)


def _dtype(raw: dict[str, Any]) -> Literal["float32", "float16", "bfloat16"]:
    name = str(raw.get("dtype") or raw.get("torch_dtype") or "float32").removeprefix("torch.")
    if name not in ("float32", "float16", "bfloat16"):
        raise ModelError(f"weights of type {name!r} are not supported, only float32, float16 and bfloat16")
    return cast(Literal["float32", "float16", "bfloat16"], name)
