"""How long a step takes on a GPU that is not there.

The roofline (Williams, Waterman, Patterson: Roofline, CACM 2009): a step lasts as long as the slower of
moving its bytes and doing its operations, plus what is lost between kernels.

    seconds = kernels * launch + max(bytes / bandwidth, operations / rate)

Bytes are the weights, once; the keys and values of every sequence in the step, once; and those of its new
tokens. Activations stay in caches and are left out. Operations are two for each weight and token, and four
for each query and key of each head and dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stretto.roles.executor.sim.gpus import GPU, LAUNCH_SECONDS
from stretto.roles.executor.sim.models import ITEM_BYTES, kv_bytes, parameters
from stretto.roles.executor.weights.model_config import ModelConfig

LAYER_KERNELS = 9
"""Norm, q-k-v, rotation with the KV write, attention, output, norm, gate-up, activation, down."""
OTHER_KERNELS = 4
"""Embedding, norm, output projection, sampling."""


class Work(NamedTuple):
    """What a step has to do."""

    tokens: int
    """Rows that are fed."""
    samples: int
    """Rows that are sampled."""
    kv_tokens: int
    """Tokens whose keys and values are read: the lengths of all sequences in the step."""
    pairs: int
    """Queries times keys that each may see."""
    copied: int = 0
    """Tokens in pages that are copied."""


StepSeconds = Callable[[Work], float]
"""From a step's work to its duration."""


def work_of(counts: np.ndarray, lengths: np.ndarray, samples: int, copied: int = 0) -> Work:
    """The work of a step that feeds `counts` tokens, int64 [B], of sequences that have `lengths` after it."""
    pairs = counts * lengths - counts * (counts - 1) // 2
    return Work(int(counts.sum()), samples, int(lengths.sum()), int(pairs.sum()), copied)


class Roofline:
    """`StepSeconds` of a model on a GPU whose kernels reach `efficiency` of its peaks; kv_item_bytes: of a
    number in the KV pool.
    """

    def __init__(
        self, gpu: GPU, model: ModelConfig, efficiency: float = 1.0, kv_item_bytes: int = ITEM_BYTES
    ) -> None:
        size = parameters(model)
        self._layers, self._head, self._kv_bytes = size.layers, size.head, kv_bytes(model, kv_item_bytes)
        self._pair_operations = 4 * model.num_layers * model.num_heads * model.head_dim
        self._launches = LAUNCH_SECONDS * (LAYER_KERNELS * model.num_layers + OTHER_KERNELS)
        self._bandwidth, self._rate = efficiency * gpu.bandwidth, efficiency * gpu.flops

    def __call__(self, work: Work) -> float:
        if not work.tokens:
            return 0.0
        memory, compute = self.bytes(work) / self._bandwidth, self.operations(work) / self._rate
        return self._launches + max(memory, compute)

    def bytes(self, work: Work) -> int:
        """What the step moves."""
        weights = self._layers + (self._head if work.samples else 0)
        return ITEM_BYTES * weights + self._kv_bytes * (work.kv_tokens + work.tokens + 2 * work.copied)

    def operations(self, work: Work) -> int:
        """What the step computes, multiplications and additions."""
        linear = 2 * (self._layers * work.tokens + self._head * work.samples)
        return linear + self._pair_operations * work.pairs


def fixed(seconds: float) -> StepSeconds:
    """Every step takes as long as any other."""
    return lambda work: seconds if work.tokens else 0.0
