"""Weights on their way from a model's files to where they are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from stretto.kernels.linear import Linear
from stretto.kernels.linear.stepped import Stepped, stack
from stretto.kernels.paged_attention import paged_attention
from stretto.roles.executor.models.kv_scales import KVScales, read_scales
from stretto.roles.executor.weights.safetensors_dir import Weights

if TYPE_CHECKING:
    from stretto.kernels.pool import Kernel


class Loader:
    """Hands out a model's weights, placed and typed for one device.

    On the CPU matrices stay as they are stored, as steps where they are stored so, or are quantized, and
    `kernels.linear` packs them;
    on a GPU they are converted to `dtype`, the type of the activations.

    kv_dtype: of keys and values in the pool; None: as the activations. attention: what layers call, with the
    arguments of `kernels.paged_attention`.
    """

    def __init__(
        self,
        weights: Weights,
        place: torch.device,
        dtype: torch.dtype,
        quantization: str = "none",
        kv_dtype: torch.dtype | None = None,
        attention: Callable[..., None] = paged_attention,
    ) -> None:
        self.place, self.dtype, self._quantization = place, dtype, quantization
        self.kv_dtype, self.attention = kv_dtype or dtype, attention
        self.model_dir = weights.model_dir
        self._weights = weights
        self._names = weights.names()
        self.kernels: dict[str, Kernel] = {}
        """What the layers handed out so far compute with, by name."""
        self.scales: list[KVScales] = []
        """Of the layers handed out so far, where the pool is fp8."""

    def tensor(self, name: str) -> torch.Tensor:
        """A matrix as the device keeps it."""
        stored = self._weights.get(name)
        return stored if self.place.type == "cpu" else stored.to(self.place, self.dtype)

    def vector(self, name: str) -> torch.Tensor:
        """A norm's weight or a bias, in the activations' type."""
        return self._weights.get(name).to(self.place, self.dtype)

    def table(self, name: str) -> Callable[[torch.Tensor], torch.Tensor]:
        """A function from ids, integers [n], to rows of the named matrix."""
        matrix = self.tensor(name)
        return lambda ids: matrix.index_select(0, ids)

    def kv_scales(self, prefix: str, heads: int) -> KVScales:
        """Those of the attention layer `prefix`; see `kv_scales.py`. Raises ModelError."""
        if self.kv_dtype.itemsize > 1:
            return KVScales()
        scales = read_scales(self._names, self._weights.get, prefix, heads)
        self.scales.append(scales)
        return KVScales(*(scale.to(self.place) for scale in scales if scale is not None))

    def head(self, name: str) -> Linear:
        """The layer of that name, which makes logits; it is not rounded to fewer than 8 bits."""
        return self._linear([name], "int8" if self._quantization == "int4" else self._quantization)

    def linear(self, *names: str) -> Linear:
        """One layer whose outputs are those of the named ones, in order; biases where the model has them."""
        return self._linear(names, self._quantization)

    def _linear(self, names: Sequence[str], quantization: str) -> Linear:
        weight = self._steps(names) if quantization == "none" and self.place.type == "cpu" else None
        if weight is None:
            weights = [self.tensor(f"{name}.weight") for name in names]
            weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        biases = [self.vector(f"{name}.bias") for name in names if f"{name}.bias" in self._names]
        layer = Linear(weight, torch.cat(biases) if biases else None, quantization)
        self.kernels |= layer.kernels
        return layer

    def step_kernels(self) -> tuple[str, ...]:
        """Names of the kernels for what is stored as steps, as in `kernels.linear.stepped`."""
        found = (self._weights.steps(name) for name in sorted(self._names))
        return tuple(sorted({steps.format.name for steps in found if steps is not None}))

    def _steps(self, names: Sequence[str]) -> Stepped | None:
        """The named matrices as one of steps, where all are stored so, in one format."""
        parts = [self._weights.steps(f"{name}.weight") for name in names]
        known = [part for part in parts if part is not None]
        return (
            stack(known) if len(known) == len(parts) and len({part.format for part in known}) == 1 else None
        )
