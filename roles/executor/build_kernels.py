"""The CPU kernels of a start: compiled while the weights are loaded, where the cache does not have them."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stretto.roles.executor.compilers import Compilers
from stretto.roles.executor.models import has_layers
from stretto.roles.executor.models.loader import Loader
from stretto.roles.executor.weights.model_config import ModelConfig

if TYPE_CHECKING:
    from stretto.kernels.warm import Network

MOST_COMPILERS = 2
"""Beside the executor. More would wait for one kernel, attention: two fifths of the time that all take."""


@contextmanager
def compiling(
    config: ModelConfig, loader: Loader, quantization: str, progress: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Within, other processes compile what the cache lacks. Yields what is to be called once the loader has
    loaded everything: it returns when all kernels are ready.
    """
    if loader.place.type != "cpu":
        yield lambda: None
        return
    from stretto.kernels import warm  # a GPU does without the compiler that this imports

    if not has_layers(config):
        yield lambda: warm.compile_all(warm.sampler(), progress)
        return
    network = network_of(config, loader, quantization)
    around = network._replace(weights=()).kernels()
    cached = warm.are_cached(network.kernels() | warm.sampler())
    compilers = Compilers(network, 0 if cached else spare_cores())
    if not cached:
        gc.freeze()  # compiling makes garbage, but not of what is there by now
        gc.enable()
    try:
        yield lambda: warm.compile_all(around | loader.kernels | warm.sampler(), progress)
    finally:
        compilers.dismiss()


def network_of(config: ModelConfig, loader: Loader, quantization: str) -> Network:
    """What decides about the kernels, as far as it is known before the weights are."""
    from stretto.kernels.warm import Network

    stored = loader.step_kernels() or (config.dtype,)
    weights = {"none": stored, "int4": ("int4", "int8")}.get(quantization, (quantization,))
    group = config.num_heads // config.num_kv_heads
    return Network(config.head_dim, group, loader.kv_dtype.itemsize, weights)


def spare_cores() -> int:
    """How many processes may compile beside the executor."""
    return min(len(os.sched_getaffinity(0)) - 1, MOST_COMPILERS)
