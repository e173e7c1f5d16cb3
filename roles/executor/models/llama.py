"""The Llama family: Llama and SmolLM, Mistral, Qwen2 (biases on q, k, v), Qwen3 (norms on queries and
keys).

The stages of a layer read and write buffers of a workspace. The residual stream is float32 whatever the
model's type. Products that share an input are one product: q, k, v and gate, up are stored as one matrix
each, which changes no bit of any output row.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from stretto.kernels.rms_norm import rms_norm
from stretto.kernels.rope_and_cache import rope_and_cache
from stretto.kernels.silu_and_mul import silu_and_mul
from stretto.roles.executor.kv import KVCache
from stretto.roles.executor.models.groups import group_layers
from stretto.roles.executor.models.interface import Context, Logits
from stretto.roles.executor.models.loader import Loader
from stretto.roles.executor.models.rotary import rotary_table
from stretto.roles.executor.models.workspace import Workspace
from stretto.roles.executor.weights.model_config import ModelConfig

if TYPE_CHECKING:
    from stretto.roles.executor.models.replay import Replay

CALLS = 9
"""Kernels of a layer: two norms, four products, rotation, attention, gate."""
HEAD_NORMS = 2
"""More of them where queries and keys have norms."""


class Attention:
    """Grouped-query attention over the paged cache of one layer."""

    def __init__(
        self, config: ModelConfig, load: Loader, prefix: str, cos_sin: torch.Tensor, window: int
    ) -> None:
        self._window = window
        self._heads, self._kv_heads, self._head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self._eps = config.rms_norm_eps
        self._cos_sin = cos_sin
        self._qkv = load.linear(f"{prefix}.q_proj", f"{prefix}.k_proj", f"{prefix}.v_proj")
        self._out = load.linear(f"{prefix}.o_proj")
        self._paged_attention = load.attention
        self._scales = load.kv_scales(prefix, config.num_kv_heads)
        self._norms = [load.vector(f"{prefix}.{n}_norm.weight") for n in ("q", "k")] if config.qk_norm else []

    def __call__(
        self, x: torch.Tensor, context: Context, keys: torch.Tensor, values: torch.Tensor, space: Workspace
    ) -> None:
        """x [T, hidden] in place; keys and values [pages, page_size, kv_heads, head_dim] of this layer."""
        rows, dim, heads = len(x), self._head_dim, self._heads
        width = (heads + 2 * self._kv_heads) * dim
        qkv = self._qkv(x, out=space.rows("qkv", rows, width, x.dtype)).view(rows, -1, dim)
        q, k, v = qkv.split([heads, self._kv_heads, self._kv_heads], dim=1)
        for part, weight in zip((q, k), self._norms, strict=False):  # for both or for none
            rms_norm(part, part, weight, self._eps)
        where = (context.positions, context.cells, keys, values)
        rope_and_cache(q, k, v, self._cos_sin, *where, *self._scales)
        mixed = space.rows("mixed", rows, heads * dim, x.dtype)
        self._attend(mixed.view(rows, heads, dim), q, keys, values, context)
        self._out(mixed, out=x)

    def _attend(
        self, out: torch.Tensor, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, context: Context
    ) -> None:
        self._paged_attention(
            out,
            q,
            keys,
            values,
            *context[2:5],
            scale=self._head_dim**-0.5,
            window=self._window,
            k_scale=self._scales.keys,
            v_scale=self._scales.values,
            chunks=context.chunks,
        )


class Mlp:
    """The gated feed-forward part of a layer."""

    def __init__(self, config: ModelConfig, load: Loader, prefix: str) -> None:
        self._width = config.intermediate_size
        self._gate_up = load.linear(f"{prefix}.gate_proj", f"{prefix}.up_proj")
        self._down = load.linear(f"{prefix}.down_proj")

    def __call__(self, x: torch.Tensor, space: Workspace) -> None:
        """x [T, hidden] in place."""
        gate_up = self._gate_up(x, out=space.rows("gate_up", len(x), 2 * self._width, x.dtype))
        gated = space.rows("gated", len(x), self._width, x.dtype)
        silu_and_mul(gated, gate_up)
        self._down(gated, out=x)


class Layer:
    """Attention and MLP, each behind a norm, each added to the residual stream by the norm that follows."""

    def __init__(
        self, config: ModelConfig, load: Loader, prefix: str, cos_sin: torch.Tensor, window: int
    ) -> None:
        self.attention_norm = load.vector(f"{prefix}.input_layernorm.weight")
        self.attention = Attention(config, load, f"{prefix}.self_attn", cos_sin, window)
        self.mlp_norm = load.vector(f"{prefix}.post_attention_layernorm.weight")
        self.mlp = Mlp(config, load, f"{prefix}.mlp")


class Llama:
    """See `interface.Model`."""

    state_pages = 0

    def __init__(self, config: ModelConfig, load: Loader, max_len: int) -> None:
        self.vocab_size, self.dtype, self.kv_dtype = config.vocab_size, load.dtype, load.kv_dtype
        windows = [config.window_of(layer) for layer in range(config.num_layers)]
        self.kv_windows, self.kv_layers, self._places = group_layers(windows)
        self.kv_heads, self.head_dim = config.num_kv_heads, config.head_dim
        self._eps = config.rms_norm_eps
        self._space = Workspace(load.place)
        cos_sin = rotary_table(config, max_len, load.place)
        self._layers = [
            Layer(config, load, f"model.layers.{i}", cos_sin, window) for i, window in enumerate(windows)
        ]
        self._norm = load.vector("model.norm.weight")
        tied = config.tie_word_embeddings
        self._head = load.head("model.embed_tokens" if tied else "lm_head")
        self._embed = self._head.rows if tied else load.table("model.embed_tokens.weight")
        self._replay = self._make_replay(config, max_len) if load.place.type == "cpu" else None

    def _make_replay(self, config: ModelConfig, max_len: int) -> Replay:
        from stretto.roles.executor.models.replay import Replay  # imports what compiles kernels for the CPU

        calls = (CALLS + HEAD_NORMS * config.qk_norm) * config.num_layers
        return Replay(self._run_layers, self._tail, calls, config.hidden_size, max_len)

    def __call__(self, ids: torch.Tensor, context: Context, cache: KVCache) -> Logits:
        residual = self._embed(ids).float()
        replay = self._replay
        if replay is not None and replay.takes(context, cache):
            return partial(_all_of, replay(residual, context, cache))
        x = self._space.rows("x", len(ids), residual.shape[1], self.dtype)
        run = self._run_layers if replay is None else replay.once
        run(x, residual, context, cache, self._space)
        return partial(self._logits, x, residual)

    def _run_layers(
        self, x: torch.Tensor, residual: torch.Tensor, context: Context, cache: KVCache, space: Workspace
    ) -> None:
        count = len(self.kv_windows)
        contexts = [context] if count == 1 else [context.of_group(group) for group in range(count)]
        for i, (layer, (group, at)) in enumerate(zip(self._layers, self._places, strict=True)):
            if i == 0:
                rms_norm(x, residual, layer.attention_norm, self._eps)
            else:
                rms_norm(x, x, layer.attention_norm, self._eps, residual=residual)
            layer.attention(x, contexts[group], cache.keys[at], cache.values[at], space)
            rms_norm(x, x, layer.mlp_norm, self._eps, residual=residual)
            layer.mlp(x, space)

    def _logits(self, x: torch.Tensor, residual: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        x, residual = x.index_select(0, rows), residual.index_select(0, rows)
        logits = self._tail(x, residual, self._space)
        if self.dtype is torch.float32:
            return logits
        return self._space.rows("float32 logits", len(x), self.vocab_size, torch.float32).copy_(logits)

    def _tail(self, x: torch.Tensor, residual: torch.Tensor, space: Workspace) -> torch.Tensor:
        rms_norm(x, x, self._norm, self._eps, residual=residual)
        return self._head(x, out=space.rows("logits", len(x), self.vocab_size, self.dtype))


def _all_of(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The logits of all rows of a step, which are those that are asked for."""
    if len(rows) != len(logits):
        raise RuntimeError(f"logits of {len(rows)} rows wanted, of a step of {len(logits)} decodes")
    return logits
