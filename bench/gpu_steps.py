"""The real executor, without a server: steps of models with random weights, on whatever device there is.

The cache is full of zeros and slots begin at the length that is wanted, so no prompt has to be computed
first. What a step takes is by the device's clock; what the host takes is the time in `launch` and `collect`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from stretto.bench.gpu_kernels import Yardsticks
from stretto.kernels.linear import Linear
from stretto.kernels.paged_attention import paged_attention
from stretto.roles import messages as m
from stretto.roles.executor.device import Device
from stretto.roles.executor.kv import KVCache, PageShape
from stretto.roles.executor.models.kv_scales import KVScales
from stretto.roles.executor.models.llama import Llama
from stretto.roles.executor.models.loader import Loader
from stretto.roles.executor.runner_device import DeviceRunner
from stretto.roles.executor.weights.model_config import ModelConfig, parse

PAGE = 16
PATIENCE = 1.0
"""Seconds after which a GPU that says nothing is asked whether it has failed."""
WARM = 8
"""Steps that are not measured: kernels are compiled, graphs are captured."""


class Size(NamedTuple):
    """A Llama, and how it is tried."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    length: int
    """Tokens that sequences have when decoding begins."""
    steps: int
    prompt: int
    """Tokens of the step that computes prompts."""


SIZES = {
    "tiny": Size(64, 96, 2, 4, 2, 250, True, 20, 8, 32),
    "1b": Size(2048, 8192, 16, 32, 8, 128256, True, 1024, 128, 8192),
    "8b": Size(4096, 14336, 32, 32, 8, 128256, False, 1024, 128, 8192),
}
"""Llama 3.2 1B and Llama 3.1 8B; heads of 64 and of 128."""


class RandomLoader:
    """Hands out weights that are nobody's; see `models.loader.Loader`."""

    def __init__(self, config: ModelConfig, place: torch.device, dtype: torch.dtype) -> None:
        self.place, self.dtype, self._config = place, dtype, config
        self.kv_dtype, self.attention = dtype, paged_attention
        self.kernels: dict[str, Any] = {}
        self.bytes = 0
        """Of weights that every step reads whole."""

    def vector(self, name: str) -> torch.Tensor:
        config = self._config
        return torch.ones(config.hidden_size, dtype=self.dtype, device=self.place)

    def kv_scales(self, prefix: str, heads: int) -> KVScales:
        return KVScales()

    def table(self, name: str) -> Any:
        matrix = self._matrix(self._config.vocab_size, self._config.hidden_size)
        return lambda ids: matrix.index_select(0, ids)

    def head(self, name: str) -> Linear:
        return self._linear(self._config.vocab_size, self._config.hidden_size)

    def linear(self, *names: str) -> Linear:
        c = self._config
        heads, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        rows = {"q_proj": heads, "k_proj": kv, "v_proj": kv, "gate_proj": c.intermediate_size}
        rows |= {"up_proj": c.intermediate_size}
        columns = {"o_proj": heads, "down_proj": c.intermediate_size}
        last = [name.rsplit(".", 1)[1] for name in names]
        count = sum(rows.get(name, c.hidden_size) for name in last)
        return self._linear(count, columns.get(last[0], c.hidden_size))

    def _linear(self, rows: int, columns: int) -> Linear:
        self.bytes += rows * columns * self.dtype.itemsize
        return Linear(self._matrix(rows, columns))

    def _matrix(self, rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, dtype=self.dtype, device=self.place) * columns**-0.5


class Weights(NamedTuple):
    """A model and the bytes of it that a step reads."""

    model: Llama
    config: ModelConfig
    bytes: int


@cache
def weights(name: str, place: torch.device, dtype: torch.dtype) -> Weights:
    """A model of that size, made once."""
    size = SIZES[name]
    raw = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": size.hidden,
        "intermediate_size": size.inner,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "vocab_size": size.vocabulary,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": size.tied,
        "rope_theta": 500000.0,
    }
    config = parse(raw, {})
    loader = RandomLoader(config, place, dtype)
    model = Llama(config, cast(Loader, loader), max(size.length + 1024, size.prompt))
    return Weights(model, config, loader.bytes)


class Decoding(NamedTuple):
    """What steps of decodes took."""

    batch: int
    graphs: bool
    overlap: bool
    tokens_per_second: float
    step_microseconds: float
    floor_microseconds: float
    """Bytes of weights, keys and values, at the measured bandwidth of a copy."""
    times_the_floor: float
    host_microseconds: float
    """Per step: in `launch` and `collect`."""
    idle_fraction: float
    """Of the time from the first step's start to the last one's end."""


class Prefill(NamedTuple):
    """What a step of prompts took."""

    tokens: int
    milliseconds: float
    tokens_per_second: float
    teraflops: float
    product_share: float


class Steps:
    """A runner and who waits for it."""

    def __init__(self, name: str, device: Device, dtype: torch.dtype, slots: int, graphs: bool) -> None:
        self.size, self.made = SIZES[name], weights(name, device.torch_device, dtype)
        model, self.longest = self.made.model, max(self.size.length + self.size.steps + 64, self.size.prompt)
        pages = -(-self.longest // PAGE)
        self.shape = PageShape(model.kv_layers, PAGE, model.kv_heads, model.head_dim, dtype)
        count = max(slots * -(-(self.size.length + self.size.steps + 64) // PAGE), pages)
        self.tables = np.random.default_rng(0).permutation(count).astype(np.int32)
        place = device.torch_device
        tensors = (torch.zeros(self._pool(count), dtype=dtype, device=place) for _ in range(2))
        self.landed, self.host_seconds = threading.Event(), 0.0
        self.runner = DeviceRunner(
            device=device,
            model=model,
            cache=KVCache(*tensors),
            slots=slots,
            pages_per_slot=pages,
            wake=self.landed.set,
            graphs=graphs,
        )

    def _pool(self, pages: int) -> tuple[int, ...]:
        return self.shape.layers, pages, PAGE, self.shape.kv_heads, self.shape.head_dim

    def run(self, plans: Iterator[m.Plan], depth: int) -> list[m.Result]:
        """Launch plans, `depth` of them at most in flight; results in order."""
        results: list[m.Result] = []
        pending: m.Plan | None = next(plans, None)
        while pending is not None or self.runner.in_flight:
            while pending is not None and self.runner.in_flight < depth:
                began = time.perf_counter()
                self.runner.launch(pending)
                self.host_seconds += time.perf_counter() - began
                pending = next(plans, None)
            self.landed.wait(PATIENCE)
            self.landed.clear()
            began = time.perf_counter()
            results += self.runner.collect()
            self.host_seconds += time.perf_counter() - began
        return results

    def decoding(self, steps: int) -> Iterator[m.Plan]:
        """Every slot admitted with its length, fed one token, then decoding."""
        size, slots = self.size, len(self.runner._mirror.lengths)
        most = -(-(size.length + size.steps + 64) // PAGE)
        tables = self.tables[: slots * most].reshape(slots, most)
        admits = [
            m.Admit(slot, size.length - 1, tables[slot].tobytes(), m.Sampling(0.8, top_p=0.95, seed=slot))
            for slot in range(slots)
        ]
        chunks = np.array([(slot, 1, 1) for slot in range(slots)], np.int32)
        yield m.Plan(1, admits, chunks=chunks.tobytes(), chunk_ids=bytes(4 * slots))
        decodes = np.arange(slots, dtype=np.int32).tobytes()
        for step in range(steps):
            yield m.Plan(2 + step, decodes=decodes)


def decode(
    name: str,
    device: Device,
    dtype: torch.dtype,
    best: Yardsticks,
    batch: int,
    graphs: bool,
    overlap: bool,
) -> Decoding:
    """Let `batch` sequences decode; whether steps are replayed, and launched one ahead."""
    steps = Steps(name, device, dtype, batch, graphs)
    size, depth = steps.size, 2 if overlap else 1
    plans = steps.decoding(WARM + size.steps)
    steps.run((next(plans) for _ in range(1 + WARM)), depth)
    steps.host_seconds = 0.0
    clocks = [result.clock for result in steps.run(plans, depth)]
    seconds = clocks[-1].ended - clocks[0].started
    idle = sum(max(0.0, after.started - before.ended) for before, after in pairwise(clocks))
    mean = size.length + WARM + size.steps / 2
    floor = (steps.made.bytes + batch * mean * steps.shape.bytes / PAGE) / best.bytes_per_second
    step = seconds / len(clocks)
    return Decoding(
        batch,
        graphs,
        overlap,
        batch / step,
        step * 1e6,
        floor * 1e6,
        step / floor,
        steps.host_seconds / len(clocks) * 1e6,
        idle / seconds,
    )


def prefill(name: str, device: Device, dtype: torch.dtype, best: Yardsticks) -> Prefill:
    """Compute one prompt in one step; the second of two counts."""
    steps = Steps(name, device, dtype, 1, graphs=False)
    tokens, c = steps.size.prompt, steps.made.config
    pages = steps.tables[: -(-tokens // PAGE)].tobytes()

    def plans() -> Iterator[m.Plan]:
        chunk = np.array([0, tokens, 1], np.int32).tobytes()
        for step in (1, 2):
            yield m.Plan(
                step, [m.Admit(0, 0, pages, m.Sampling())], chunks=chunk, chunk_ids=bytes(4 * tokens)
            )

    clock = steps.run(plans(), 1)[-1].clock
    seconds = clock.ended - clock.started
    head = c.vocab_size * c.hidden_size * dtype.itemsize
    matrices = 2 * tokens * (steps.made.bytes - head) / dtype.itemsize
    attention = 2 * tokens * tokens * c.num_heads * c.head_dim * c.num_layers
    rate = (matrices + attention) / seconds
    return Prefill(tokens, seconds * 1e3, tokens / seconds, rate / 1e12, rate / best.flops_per_second)
