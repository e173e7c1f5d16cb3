"""GGUF tensors, whatever their quantisation, as one safetensors file that transformers understands, and
beside it, where blocks are steps (`gguf_steps.py`), a file of these.

Values are those of `gguf.quants.dequantize` (float32), rounded to float16: 11 significant bits, a relative
error of at most 2^-11 and, below 6.1e-5, an absolute one of at most 3e-8. The blocks of all quantisation
types have float16 scales and 2 to 8 bits a weight, so this is far less than quantisation has already lost;
bfloat16 weights within float16's normal range are stored exactly. Where a value is beyond float16's range
(65504), the whole model is stored as float32 instead, without steps.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gguf.quants import dequantize

from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.gguf_file import GGUFFile, TensorInfo
from stretto.roles.executor.weights.gguf_steps import KINDS, Steps, pack_words, read_steps
from stretto.roles.executor.weights.layout import STEPS
from stretto.roles.executor.weights.model_config import ModelConfig
from stretto.roles.executor.weights.safetensors_writer import Layout, SafetensorsWriter
from stretto.roles.executor.weights.shapes import expected_shapes

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NOT_WEIGHTS = {"rope_freqs.weight"}
"""Rotary scaling, which goes to config.json."""
_CHUNK_ELEMENTS = 1 << 20
_HALF = np.dtype(np.float16)
_INTERLEAVED = ("LlamaForCausalLM", "MistralForCausalLM")
"""Architectures whose q and k rows llama.cpp reorders, so that it can rotate neighbouring pairs."""


class _Tensor(NamedTuple):
    name: str
    """transformers' name."""
    info: TensorInfo
    order: np.ndarray | None
    """int64[rows]: which stored row comes where; None: as they are."""

    @property
    def stepped(self) -> bool:
        """Whether it is a matrix of steps."""
        return len(self.info.shape) > 1 and self.info.type in KINDS


class _BeyondFloat16(Exception):
    pass


def write_weights(file: GGUFFile, config: ModelConfig, path: Path, progress: Callable[[str], None]) -> str:
    """Convert all tensors into the safetensors file `path`, and what is steps also into `steps_file(path)`;
    returns the stored type, "float16" or "float32".

    Raises `ModelError` when tensors are missing, surplus, misshapen or not numbers.
    """
    tensors = _plan(file, config)
    try:
        _write(file, tensors, path, _HALF, progress)
        return "float16"
    except _BeyondFloat16:
        progress("some weights are beyond float16's range: storing float32")
        steps_file(path).unlink(missing_ok=True)
        _write(file, tensors, path, np.dtype(np.float32), progress)
        return "float32"


def steps_file(path: Path) -> Path:
    """What lies beside a safetensors file of that name."""
    return path.with_name(STEPS)


def _plan(file: GGUFFile, config: ModelConfig) -> list[_Tensor]:
    infos = {_name(file, info): info for info in file.tensors.values() if info.name not in _NOT_WEIGHTS}
    _check_shapes(file, config, infos)
    return [_Tensor(name, info, _order(info, config)) for name, info in infos.items()]


def _check_shapes(file: GGUFFile, config: ModelConfig, infos: dict[str, TensorInfo]) -> None:
    if config.num_layers > len(infos):
        raise ModelError(f"{file.path} has too few tensors for {config.num_layers} layers; fetch it again")
    expected = expected_shapes(config)
    if missing := sorted(expected.keys() - infos.keys()):
        raise ModelError(f"{file.path} lacks {missing[0]} ({len(missing)} tensors in all); fetch it again")
    for name, info in infos.items():
        if expected.get(name) != info.shape:
            raise ModelError(f"{file.path}: {name} of shape {info.shape} does not fit its metadata")


def _order(info: TensorInfo, config: ModelConfig) -> np.ndarray | None:
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}.get(info.name.split(".")[-2])
    if heads is None or config.architecture not in _INTERLEAVED:
        return None
    return _half_split_order(heads, config.head_dim)


def _name(file: GGUFFile, info: TensorInfo) -> str:
    stem, _, suffix = info.name.rpartition(".")
    return f"{_stem(file, stem)}.{suffix}"


def _stem(file: GGUFFile, stem: str) -> str:
    if stem in _TOP:
        return _TOP[stem]
    block, _, leaf = stem.removeprefix("blk.").partition(".")
    if not stem.startswith("blk.") or leaf not in _LAYER:
        raise ModelError(f"{file.path}: no model of this architecture has a tensor {stem!r}; not supported")
    return f"model.layers.{block}.{_LAYER[leaf]}"


def _half_split_order(heads: int, head_dim: int) -> np.ndarray:
    """Undoes llama.cpp's reordering: row i of a head's first half lies at 2i, of its second at 2i + 1."""
    return np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2).swapaxes(1, 2).ravel()


def _write(
    file: GGUFFile, tensors: list[_Tensor], path: Path, dtype: np.dtype, progress: Callable[[str], None]
) -> None:
    layouts = {tensor.name: Layout(tensor.info.shape, dtype) for tensor in tensors}
    chunks = [(tensor, start, stop) for tensor in tensors for start, stop in _chunks(tensor.info)]

    def convert(chunk: tuple[_Tensor, int, int]) -> None:
        tensor, start, stop = chunk
        exact, steps = _exact(file, tensor, start, stop)
        writer.write(tensor.name, start * tensor.info.shape[-1], _rounded(file, tensor, exact, dtype))
        if steps is not None and beside is not None:
            _write_steps(beside, tensor, start, steps)

    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(SafetensorsWriter(path, layouts))
        parts = _steps_layouts(tensors) if dtype == _HALF else {}
        beside = stack.enter_context(SafetensorsWriter(steps_file(path), parts)) if parts else None
        pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count()))
        reported = 0
        for done, _ in enumerate(pool.map(convert, chunks), start=1):
            if done * 10 // len(chunks) > reported:
                reported = done * 10 // len(chunks)
                progress(f"converting weights: {reported * 10} %")


def _steps_layouts(tensors: list[_Tensor]) -> dict[str, Layout]:
    layouts = {}
    for name, info, _ in (tensor for tensor in tensors if tensor.stepped):
        kind, (rows, depth) = KINDS[info.type], info.shape
        layouts[f"{name}.words"] = Layout((rows, depth * kind.bits // 32), np.dtype(np.int32))
        for table in ("scales", "minima"):
            layouts[f"{name}.{table}"] = Layout((rows, depth // kind.group), kind.table)
    return layouts


def _write_steps(writer: SafetensorsWriter, tensor: _Tensor, start: int, steps: Steps) -> None:
    kind = KINDS[tensor.info.type]
    parts = {"words": pack_words(steps.steps, kind.bits)}
    with np.errstate(over="ignore"):
        parts |= {"scales": steps.scales.astype(kind.table), "minima": steps.minima.astype(kind.table)}
    for name, values in parts.items():
        if not np.isfinite(values).all():
            raise _BeyondFloat16
        writer.write(f"{tensor.name}.{name}", start * values.shape[1], values)


def _chunks(info: TensorInfo) -> Iterator[tuple[int, int]]:
    """Half-open row ranges of some million elements each."""
    step = max(1, _CHUNK_ELEMENTS // info.shape[-1])
    for start in range(0, info.rows, step):
        yield start, min(start + step, info.rows)


def _exact(file: GGUFFile, tensor: _Tensor, start: int, stop: int) -> tuple[np.ndarray, Steps | None]:
    """Rows [start, stop) of the converted tensor as float32, reordered while they are packed, which is
    cheaper; and as steps, if that is what they are.
    """
    stored = file.rows(tensor.info)
    vector = len(tensor.info.shape) == 1
    rows = stored[start:stop] if tensor.order is None or vector else stored[tensor.order[start:stop]]
    if tensor.stepped:
        steps = read_steps(rows, tensor.info.type)
        return steps.values(), steps
    try:
        exact = dequantize(rows, tensor.info.type)
    except NotImplementedError:
        raise ModelError(f"{file.path}: quantisation type {tensor.info.type.name} is not supported") from None
    return (exact[:, tensor.order] if tensor.order is not None and vector else exact), None


def _rounded(file: GGUFFile, tensor: _Tensor, exact: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The numbers in the stored type. Raises `_BeyondFloat16`, or `ModelError` for what are no numbers."""
    with np.errstate(over="ignore"):
        values = exact.astype(dtype)
    if not np.isfinite(values).all():
        if np.isfinite(exact).all():
            raise _BeyondFloat16
        raise ModelError(
            f"{file.path} is damaged: tensor {tensor.info.name} holds values that are not numbers"
        )
    return values
