from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file

from stretto.kernels.linear.stepped import Stepped, weights
from stretto.roles.executor.weights import gguf_config, gguf_weights, model_config
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.gguf_file import GGUFFile


def convert(path: Path) -> tuple[str, dict[str, np.ndarray]]:
    file = GGUFFile(path)
    config = model_config.parse(gguf_config.config(file, "float16"), {})
    out = path.with_suffix(".safetensors")
    return gguf_weights.write_weights(file, config, out, lambda line: None), load_file(out)


KINDS = {
    "attn_v": Type.Q8_0,
    "attn_output": Type.Q4_0,
    "ffn_gate": Type.Q4_1,
    "ffn_up": Type.Q5_0,
    "ffn_down": Type.Q5_1,
    "token_embd": Type.BF16,
    "output.weight": Type.F16,
}


def test_values_are_those_of_the_gguf_package_rounded_once(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    path = write_gguf(tiny("LlamaForCausalLM"), "llama", KINDS)
    dtype, tensors = convert(path)
    exact = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(path).tensors
    }
    assert dtype == "float16"
    for theirs, ours in {
        "blk.0.attn_v.weight": "model.layers.0.self_attn.v_proj.weight",
        "blk.1.attn_output.weight": "model.layers.1.self_attn.o_proj.weight",
        "blk.0.ffn_gate.weight": "model.layers.0.mlp.gate_proj.weight",
        "blk.1.ffn_up.weight": "model.layers.1.mlp.up_proj.weight",
        "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
        "blk.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight",
        "token_embd.weight": "model.embed_tokens.weight",
        "output.weight": "lm_head.weight",
    }.items():
        np.testing.assert_array_equal(tensors[ours], exact[theirs].astype(np.float16))


@pytest.mark.parametrize(
    "kind", [Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_XS, Type.IQ3_S]
)
def test_super_block_types(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, kind: Type
) -> None:
    """The gguf package cannot quantise to these, but any bytes with a finite scale are valid blocks."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = np.full((64, size), 0x2D, np.uint8)
    model = tiny("LlamaForCausalLM", intermediate_size=256)
    quantize = gguf.quants.quantize
    monkeypatch.setattr(gguf.quants, "quantize", lambda v, k: blocks if k == kind else quantize(v, k))
    _, tensors = convert(write_gguf(model, "llama", {"ffn_down": kind}))
    expected = gguf.quants.dequantize(blocks, kind).astype(np.float16)
    np.testing.assert_array_equal(tensors["model.layers.1.mlp.down_proj.weight"], expected)


@pytest.mark.parametrize(
    ("architecture", "name"), [("llama", "Llama"), ("qwen2", "Qwen2"), ("qwen3", "Qwen3")]
)
def test_every_tensor_comes_back_in_its_place(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path], architecture: str, name: str
) -> None:
    model = tiny(f"{name}ForCausalLM")
    _, tensors = convert(write_gguf(model, architecture))
    state = model.state_dict()
    assert tensors.keys() == state.keys()
    for key, tensor in state.items():
        np.testing.assert_array_equal(tensors[key], tensor.numpy().astype(np.float16))


def test_interleaved_rows_are_sorted_out_in_quantised_tensors_too(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    model = tiny("LlamaForCausalLM")
    _, tensors = convert(write_gguf(model, "llama", {"attn_q": Type.Q8_0, "attn_k": Type.Q8_0}))
    for name in ("q", "k"):
        key = f"model.layers.0.self_attn.{name}_proj.weight"
        quantised = gguf.quants.quantize(model.state_dict()[key].numpy(), Type.Q8_0)
        expected = gguf.quants.dequantize(quantised, Type.Q8_0).astype(np.float16)
        np.testing.assert_array_equal(tensors[key], expected)


def test_biases_of_a_llama_are_sorted_out_too(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    model = tiny("LlamaForCausalLM", attention_bias=True)
    _, tensors = convert(write_gguf(model, "llama"))
    key = "model.layers.1.self_attn.q_proj.bias"
    np.testing.assert_array_equal(tensors[key], model.state_dict()[key].numpy().astype(np.float16))


def test_a_weight_beyond_float16_makes_the_model_float32(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    model = tiny("LlamaForCausalLM")
    model.model.layers[1].mlp.down_proj.weight.data[3, 5] = 70000.0
    dtype, tensors = convert(write_gguf(model, "llama"))
    assert dtype == "float32"
    assert tensors["model.layers.1.mlp.down_proj.weight"][3, 5] == 70000.0
    np.testing.assert_array_equal(tensors["lm_head.weight"], model.lm_head.weight.detach().numpy())


def test_values_that_are_not_numbers_are_refused(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    model = tiny("LlamaForCausalLM")
    model.lm_head.weight.data[0, 0] = float("nan")
    with pytest.raises(ModelError, match=r"tensor output\.weight holds values that are not numbers"):
        convert(write_gguf(model, "llama"))


def test_missing_and_surplus_tensors_are_named(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    model = tiny("LlamaForCausalLM")

    def surplus(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("blk.0.ssm_a.weight", np.ones(4, np.float32))

    with pytest.raises(ModelError, match=r"blk\.0\.ssm_a"):
        convert(write_gguf(model, "llama", edit=surplus))
    with pytest.raises(ModelError, match=r"lacks model\.layers\.0\.self_attn\.k_norm\.weight \(4 tensors"):
        convert(write_gguf(model, "qwen3", name="qwen3.gguf"))


def test_quantized_matrices_are_kept_as_steps_beside_their_values(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    path = write_gguf(tiny("LlamaForCausalLM"), "llama", KINDS)
    _, tensors = convert(path)
    kept = load_file(gguf_weights.steps_file(path))
    names = {name.rpartition(".")[0] for name in kept}
    stepped = ("v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert names == {name for name in tensors if any(part in name for part in stepped)}
    for name in names:
        steps = (torch.from_numpy(kept[f"{name}.{part}"]) for part in ("words", "scales", "minima"))
        values = weights(Stepped(*steps, tensors[name].shape[1]))
        np.testing.assert_array_equal(values.half().numpy(), tensors[name])


def test_reordered_rows_take_their_steps_along(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    path = write_gguf(tiny("LlamaForCausalLM"), "llama", {"attn_q": Type.Q8_0})
    _, tensors = convert(path)
    kept, name = load_file(gguf_weights.steps_file(path)), "model.layers.1.self_attn.q_proj.weight"
    steps = (torch.from_numpy(kept[f"{name}.{part}"]) for part in ("words", "scales", "minima"))
    values = weights(Stepped(*steps, tensors[name].shape[1]))
    np.testing.assert_array_equal(values.half().numpy(), tensors[name])


def test_a_file_without_steps_has_none_beside_it(
    tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    path = write_gguf(tiny("LlamaForCausalLM"), "llama", {})
    convert(path)
    assert not gguf_weights.steps_file(path).exists()
