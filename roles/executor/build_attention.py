"""From a configuration to the attention that the layers of a model call."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType

import torch

from stretto.kernels.paged_attention.flashinfer import FlashInferAttention
from stretto.roles.config import Config
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.models.kv_scales import KVScales
from stretto.roles.executor.weights.model_config import ModelConfig

FLASHINFER = "--attention-backend flashinfer"
HEAD_DIMS = (64, 128, 256)
"""Sizes of a head that FlashInfer has kernels for."""


def build_attention(
    config: Config, model: ModelConfig, place: torch.device, dtype: torch.dtype
) -> FlashInferAttention | None:
    """FlashInfer's attention where it is asked for; None: the kernels of this package. Raises ConfigError."""
    if place.type != "cuda":
        refuse_attention(config)
    if config.attention_backend != "flashinfer":
        return None
    if dtype.itemsize != 2:
        raise ConfigError(f"{FLASHINFER} computes in 16 bits; give --dtype bfloat16, or leave it out")
    if model.head_dim not in HEAD_DIMS:
        raise ConfigError(f"{FLASHINFER} has no kernel for heads of {model.head_dim}; leave it out")
    return FlashInferAttention(_library(), place)


def refuse_attention(config: Config) -> None:
    """Raise ConfigError where an attention is asked for that only a GPU has."""
    if config.attention_backend != "auto":
        raise ConfigError(
            f"--attention-backend {config.attention_backend} is for --device cuda; leave it out"
        )


def _library() -> ModuleType:
    try:
        return importlib.import_module("flashinfer")
    except ImportError as error:
        raise ConfigError(
            f"{FLASHINFER}: {error}; install the package flashinfer-python, or leave it out"
        ) from error


def check_scales(scales: Iterable[KVScales]) -> None:
    """Raise ConfigError where a layer has another scale for each head, which FlashInfer does not take."""
    if any(bool((part != part[0]).any()) for pair in scales for part in pair if part is not None):
        raise ConfigError(f"{FLASHINFER} takes one KV scale a layer, the model has one a head; leave it out")
