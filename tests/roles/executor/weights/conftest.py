"""Tiny models, as transformers saves them and as llama.cpp would store them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from tokenizers import pre_tokenizers

LEAVES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_end|>"]


def gguf_name(name: str) -> str:
    """transformers' tensor name as llama.cpp's."""
    stem, suffix = name.rsplit(".", 1)
    if stem in TOP:
        return f"{TOP[stem]}.{suffix}"
    _, _, layer, leaf = stem.split(".", 3)
    return f"blk.{layer}.{LEAVES[leaf]}.{suffix}"


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to the q and k projections of Llama models (`permute`)."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def tiny_model(architecture: str, **changes: Any) -> Any:
    """A random transformers model with 2 layers of 4 heads and 2 KV heads of 16."""
    torch.manual_seed(0)
    config = getattr(transformers, architecture.replace("ForCausalLM", "Config"))(
        **{
            "vocab_size": 260,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 512,
            **changes,
        }
    )
    model = getattr(transformers, architecture)(config).eval()
    for name, tensor in model.named_parameters():
        if "bias" in name or "norm" in name:
            tensor.data += torch.randn_like(tensor) * 0.1
    return model


def byte_level_tokens() -> list[str]:
    """Special tokens, then one token a byte."""
    return [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]


def add_byte_level(writer: gguf.GGUFWriter, tokens: list[str], merges: list[str], pre: str | None) -> None:
    """Tokenizer metadata in which the special tokens are control tokens."""
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def add_config(writer: gguf.GGUFWriter, config: Any) -> None:
    """The hyperparameters of a transformers configuration."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)


def store(writer: gguf.GGUFWriter, name: str, values: np.ndarray, kind: Type) -> None:
    """Add a tensor in the given quantisation; vectors stay float32, as llama.cpp keeps them."""
    if values.ndim == 1 or kind == Type.F32:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


WriteGGUF = Callable[..., Path]


@pytest.fixture
def write_gguf(tmp_path: Path) -> WriteGGUF:
    """A function that stores a transformers model as a GGUF file and returns its path.

    `kinds` names the quantisation of a tensor by part of its GGUF name; `edit` may add to the writer.
    """

    def write(
        model: Any,
        architecture: str,
        kinds: dict[str, Type] | None = None,
        edit: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
        pre: str | None = "gpt-2",
        name: str = "tiny.gguf",
    ) -> Path:
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, architecture)
        add_config(writer, model.config)
        add_byte_level(writer, byte_level_tokens(), [], pre)
        edit(writer)
        heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
        for key, tensor in model.state_dict().items():
            if key == "lm_head.weight" and model.config.tie_word_embeddings:
                continue
            target, values = gguf_name(key), tensor.float().numpy()
            leaf = target.split(".")[-2]
            if architecture == "llama" and leaf in heads:
                values = interleave(values, heads[leaf])
            kind = next((kind for part, kind in (kinds or {}).items() if part in target), Type.F32)
            store(writer, target, np.ascontiguousarray(values), kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


@pytest.fixture
def tiny() -> Callable[..., Any]:
    """`tiny_model`, for tests."""
    return tiny_model
