"""Weights on their way from a model's files to where they are used."""

from __future__ import annotations

from collections.abc import Callable

import torch

from stretto.kernels.linear import Linear
from stretto.roles.executor.weights.safetensors_dir import Weights


class Loader:
    """Hands out a model's weights, placed and typed for one device.

    On the CPU matrices stay in the type they are stored in, and `kernels.linear` packs them; on a GPU they
    are converted to `dtype`, the type of the activations.
    """

    def __init__(self, weights: Weights, place: torch.device, dtype: torch.dtype) -> None:
        self.place, self.dtype = place, dtype
        self.model_dir = weights.model_dir
        self._weights = weights
        self._names = weights.names()
        self.matrix_dtypes: set[torch.dtype] = set()
        """Types in which the matrices handed out so far are kept."""

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

    def linear(self, *names: str) -> Linear:
        """One layer whose outputs are those of the named ones, in order; biases where the model has them."""
        weights = [self.tensor(f"{name}.weight") for name in names]
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        biases = [self.vector(f"{name}.bias") for name in names if f"{name}.bias" in self._names]
        self.matrix_dtypes.add(weight.dtype)
        return Linear(weight, torch.cat(biases) if biases else None)
