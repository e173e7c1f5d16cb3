"""The table of rotary position embeddings (Su et al., arXiv:2104.09864)."""

from __future__ import annotations

import math

import torch

from stretto.roles.executor.weights.model_config import ModelConfig, RopeScaling


def rotary_table(config: ModelConfig, positions: int, place: torch.device) -> torch.Tensor:
    """Cosines, then sines, of every position's angles: float32 [positions, head_dim].

    Computed in float32 in the same order as transformers does, so that the angles have the same bits.
    """
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = _scaled(1.0 / (config.rope_theta**steps), config.rope_scaling)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    return torch.cat([angles.cos(), angles.sin()], dim=1).to(place)


def _scaled(frequencies: torch.Tensor, scaling: RopeScaling | None) -> torch.Tensor:
    if scaling is None:
        return frequencies
    if scaling.type == "linear":
        return frequencies / scaling.factor
    return _llama3(frequencies, scaling)


def _llama3(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Llama 3.1: slow rotations stretched, fast ones kept, and a ramp between the two wavelengths."""
    context = scaling.original_max_position_embeddings
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    wavelengths = 2 * math.pi / frequencies
    slow = torch.where(wavelengths > context / low, frequencies / scaling.factor, frequencies)
    ramp = (context / wavelengths - low) / (high - low)
    blended = (1 - ramp) * slow / scaling.factor + ramp * slow
    between = ~(wavelengths < context / high) & ~(wavelengths > context / low)
    return torch.where(between, blended, slow)
