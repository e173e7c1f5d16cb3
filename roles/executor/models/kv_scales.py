"""Scales of an fp8 KV cache, as checkpoints store them: a number in the cache times its scale is the number
that was meant.

| written by         | tensors of a layer's `self_attn`                                        |
|--------------------|-------------------------------------------------------------------------|
| compressed-tensors | `k_scale`, `v_scale`                                                     |
| ModelOpt           | `k_proj.k_scale`, `v_proj.v_scale`                                       |
| AutoFP8            | `k_proj.output_scale`, `v_proj.output_scale`; earlier one `kv_scale`     |

Each has one number, or one for every KV head. Where there is none the scale is 1, as in vLLM: keys and values
of most models stay well within fp8's 448, and its relative precision is the same at every size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import torch

from stretto.roles.executor.weights.errors import ModelError


class KVScales(NamedTuple):
    """Of one layer: float32 [kv_heads] each, positive; None where the cache is not fp8."""

    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None


def read_scales(
    names: Collection[str], get: Callable[[str], torch.Tensor], prefix: str, heads: int
) -> KVScales:
    """The scales of the attention layer `prefix`, of the tensors that there are. Raises ModelError."""

    def read(which: str) -> torch.Tensor:
        stored = (f"{which}_scale", f"{which}_proj.{which}_scale", f"{which}_proj.output_scale", "kv_scale")
        found = next((name for end in stored if (name := f"{prefix}.{end}") in names), None)
        return torch.ones(heads) if found is None else _spread(found, get(found), heads)

    return KVScales(read("k"), read("v"))


def _spread(name: str, stored: torch.Tensor, heads: int) -> torch.Tensor:
    if stored.numel() not in (1, heads):
        raise ModelError(f"{name} has {stored.numel()} numbers, but there are {heads} KV heads")
    scales = stored.float().flatten().expand(heads).clone()
    if not bool((scales.isfinite() & (scales > 0)).all()):
        raise ModelError(f"{name} is {scales.tolist()}, but a scale is a positive number")
    return scales
