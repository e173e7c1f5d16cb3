"""GGUF metadata as transformers would have written it: `config.json` and `generation_config.json`."""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.gguf_file import GGUFFile

_ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
}
"""GGUF architecture to transformers' class name and model type. Mistral and SmolLM are "llama" there."""

_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "</s>")
"""Control tokens that end an answer in the chat formats of these families, whatever the file names as its
end of sequence; llama.cpp recognises them by their text too."""
_CONTROL = 3

_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""What all published Llama 3.1, 3.2 and 3.3 models use."""


def config(file: GGUFFile, dtype: str) -> dict[str, Any]:
    """The content of config.json, in the spelling that every version of transformers reads.

    Raises `ModelError` for an architecture or a feature that is not supported.
    """
    architecture, model_type = _architecture(file)
    get = _Getter(file)
    heads = get("attention.head_count")
    head_dim = _head_dim(get, heads)
    theta = float(get("rope.freq_base", 10000.0))
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": get("embedding_length"),
        "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": get("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab_size": file.tensors["token_embd.weight"].rows if "token_embd.weight" in file.tensors else 0,
        "max_position_embeddings": get("context_length"),
        "rms_norm_eps": _shortest(get("attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "rope_scaling": _rope_scaling(file, get, theta, head_dim),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": dtype,
        **_biases_and_window(file, get, architecture),
        **_special_ids(file),
    }


def generation_config(file: GGUFFile) -> dict[str, Any]:
    """The content of generation_config.json: the special ids, with every token that ends an answer."""
    ids = {key: value for key, value in _special_ids(file).items() if value is not None}
    ends = end_ids(file)
    return {**ids, "eos_token_id": ends if len(ends) > 1 else ends[0]} if ends else ids


def end_ids(file: GGUFFile) -> list[int]:
    """The ends of sequence, turn and message, then the control tokens known as such by their text.

    A token that the file also names as its unknown token is none of them (SmolLM2's `<|endoftext|>`).
    """
    get = file.metadata.get
    named = [get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    tokens, types = get("tokenizer.ggml.tokens", []), get("tokenizer.ggml.token_type")
    control = set() if types is None else set(np.flatnonzero(types == _CONTROL).tolist())
    by_text = [index for index in sorted(control) if tokens[index] in _TURN_ENDS]
    by_text = [index for index in by_text if index != get("tokenizer.ggml.unknown_token_id")]
    return list(dict.fromkeys(index for index in [*named, *by_text] if index is not None))


class _Getter:
    """Reads a key of the file's architecture, as in `llama.block_count`."""

    def __init__(self, file: GGUFFile) -> None:
        self._file = file
        self._prefix = file.metadata["general.architecture"]

    def __call__(self, key: str, *default: Any) -> Any:
        name = f"{self._prefix}.{key}"
        if name in self._file.metadata:
            return self._file.metadata[name]
        if default:
            return default[0]
        raise ModelError(f"{self._file.path} lacks {name}; the file is incomplete, fetch it again")


def _architecture(file: GGUFFile) -> tuple[str, str]:
    name = file.metadata.get("general.architecture")
    if name not in _ARCHITECTURES:
        raise ModelError(
            f"{file.path}: architecture {name!r} is not supported; the supported ones are "
            f"{', '.join(_ARCHITECTURES)}"
        )
    if file.metadata.get(f"{name}.expert_count"):
        raise ModelError(f"{file.path}: mixture-of-experts models are not supported")
    if int(file.metadata.get("split.count", 1)) > 1:
        raise ModelError(f"{file.path} is one part of several; join them with llama-gguf-split --merge")
    if name == "llama" and file.metadata.get("llama.attention.sliding_window"):
        return "MistralForCausalLM", "mistral"
    return _ARCHITECTURES[name]


def _head_dim(get: _Getter, heads: int) -> int:
    head_dim = int(get("attention.key_length", get("embedding_length") // heads))
    rotated, values = int(get("rope.dimension_count", head_dim)), int(get("attention.value_length", head_dim))
    if rotated != head_dim or values != head_dim:
        raise ModelError(
            f"heads of {head_dim} dimensions of which {rotated} are rotated, with values of {values}, "
            "are not supported"
        )
    return head_dim


def _biases_and_window(file: GGUFFile, get: _Getter, architecture: str) -> dict[str, Any]:
    """What depends on the class: only Llama and Qwen3 say whether they have biases; Llama has no window."""
    if architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM"):
        return {"attention_bias": "blk.0.attn_q.bias" in file.tensors}
    window = get("attention.sliding_window", None)
    if architecture == "MistralForCausalLM":
        return {"sliding_window": window}
    return {"sliding_window": window, "use_sliding_window": False}


def _special_ids(file: GGUFFile) -> dict[str, int | None]:
    keys = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {name: file.metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}


def _rope_scaling(file: GGUFFile, get: _Getter, theta: float, head_dim: int) -> dict[str, Any] | None:
    if "rope_freqs.weight" in file.tensors:
        return _llama3_scaling(file, theta, head_dim)
    kind = get("rope.scaling.type", "none")
    if kind == "none":
        return None
    return {"rope_type": kind, "factor": float(get("rope.scaling.factor"))}


def _llama3_scaling(file: GGUFFile, theta: float, head_dim: int) -> dict[str, Any]:
    """llama.cpp stores the divisors of the frequencies, not the parameters they were computed from.

    The largest divisor is the factor; the rest is checked against what the published parameters give.
    """
    stored = file.rows(file.tensors["rope_freqs.weight"]).view(np.float32).ravel()
    scaling = {"rope_type": "llama3", "factor": float(stored.max()), **_LLAMA3}
    expected = llama3_divisors(theta, head_dim, scaling)
    if stored.shape != expected.shape or not np.allclose(stored, expected, rtol=1e-4):
        raise ModelError(f"{file.path}: its rope frequency factors are not those of Llama 3; not supported")
    return scaling


def llama3_divisors(theta: float, head_dim: int, scaling: dict[str, Any]) -> np.ndarray:
    """By what each of the head_dim / 2 rotary frequencies is divided; float64[head_dim / 2]."""
    wavelengths = 2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    turns = scaling["original_max_position_embeddings"] / wavelengths
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1 - smooth) / factor + smooth)


def _shortest(value: float) -> float:
    """A float32 that was widened on reading, as the number somebody wrote: 9.99999974e-06 as 1e-05."""
    return float(str(np.float32(value)))
