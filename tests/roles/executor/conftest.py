"""A scheduler in small and models in small, for tests of the executor."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stretto.kernels.paged_attention import paged_attention
from stretto.roles import messages as m
from stretto.roles.executor.device_cpu import CpuDevice
from stretto.roles.executor.kv import KVCache, PageShape
from stretto.roles.executor.models import build_model
from stretto.roles.executor.models.interface import Context, Logits, Model
from stretto.roles.executor.models.loader import Loader
from stretto.roles.executor.runner import Runner
from stretto.roles.executor.weights.model_config import load_model_config
from stretto.roles.executor.weights.safetensors_dir import Weights

TINY: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def int32(values: Any) -> bytes:
    return np.array(values, np.int32).tobytes()


@dataclass
class Bench:
    """A runner with a pool of `pages`, handed out in shuffled order, and a plan at a time."""

    runner: Runner
    page_size: int
    free: list[int]
    landed: threading.Event
    steps: int = 0
    lengths: dict[int, int] = field(default_factory=dict)
    pages: dict[int, list[int]] = field(default_factory=dict)
    groups: int = 1
    """Of the model's layers: a slot's pages are one of each for every index."""
    state_pages: int = 0

    def plan(
        self,
        chunks: Sequence[tuple[int, Sequence[int], bool]] = (),
        decodes: Sequence[int] = (),
        admits: dict[int, m.Sampling] | None = None,
        copies: Sequence[tuple[int, int]] = (),
        cold: bool = False,
        histories: dict[int, tuple[int, Sequence[int]]] | None = None,
        scored: Sequence[tuple[int, int]] = (),
    ) -> m.Plan:
        """The next plan: admits fresh slots, feeds chunks (slot, ids, samples), grows tables as needed.

        histories: for admitted slots, their prompt's length, and all ids of their sequence.
        """
        self.steps += 1
        known = {slot: (length, int32(ids)) for slot, (length, ids) in (histories or {}).items()}
        admitted = [
            m.Admit(
                slot,
                0,
                int32([self.free.pop() for _ in range(self.state_pages)]),
                sampling,
                *known.get(slot, ()),
            )
            for slot, sampling in (admits or {}).items()
        ]
        for slot in admits or ():
            self.lengths[slot], self.pages[slot] = 0, []
        growth = [pair for slot, ids, _ in chunks for pair in self._extend(slot, len(ids))]
        growth += [pair for slot in decodes for pair in self._extend(slot, 1)]
        return m.Plan(
            step=self.steps,
            admits=admitted,
            growth=int32(growth),
            chunks=int32([(slot, len(ids), samples) for slot, ids, samples in chunks]),
            chunk_ids=int32([i for _, ids, _ in chunks for i in ids]),
            decodes=int32(list(decodes)),
            copies=int32(list(copies)),
            cold=cold,
            scored=int32(list(scored)),
        )

    def _extend(self, slot: int, count: int) -> Iterator[tuple[int, int]]:
        self.lengths[slot] += count
        while len(self.pages[slot]) // self.groups * self.page_size < self.lengths[slot]:
            for _ in range(self.groups):
                page = self.free.pop()
                self.pages[slot].append(page)
                yield slot, page

    def result(self) -> m.Result:
        """Wait for the next result; one step may have landed with another."""
        while not (results := self.runner.collect()):
            self.landed.wait()
            self.landed.clear()
        assert len(results) == 1
        return results[0]

    def run_ahead(self, plans: Sequence[dict[str, Any]]) -> list[m.Result]:
        """Launch plans, each before the result of the one before it is read; returns all results."""
        results: list[m.Result] = []
        for wanted, plan in enumerate([*plans, None]):
            if plan is not None:
                self.runner.launch(self.plan(**plan))
            while len(results) < wanted:
                if not (new := self.runner.collect()):
                    self.landed.wait()
                    self.landed.clear()
                results += new
        return results

    def step(self, *args: Any, **kwargs: Any) -> list[int]:
        """Run one plan to its end and return its tokens."""
        self.runner.launch(self.plan(*args, **kwargs))
        return np.frombuffer(self.result().tokens, np.int32).tolist()

    def generate(
        self, prompts: Sequence[Sequence[int]], count: int, chunk: int = 1000, **sampling: Any
    ) -> list[list[int]]:
        """`count` tokens for each prompt, all at once, prompts fed in chunks, in slots 0, 1, 2 ..."""
        slots = range(len(prompts))
        wanted = {slot: m.Sampling(**sampling) for slot in slots}
        histories = {slot: (len(prompts[slot]), prompts[slot]) for slot in slots}
        tokens: list[list[int]] = [[] for _ in slots]
        at = [0 for _ in slots]
        while any(len(out) < count for out in tokens):
            parts = [(s, prompts[s][at[s] : at[s] + chunk]) for s in slots if at[s] < len(prompts[s])]
            chunks = [(s, ids, at[s] + len(ids) == len(prompts[s])) for s, ids in parts]
            decodes = [s for s in slots if at[s] == len(prompts[s]) and len(tokens[s]) < count]
            new = iter(self.step(chunks, decodes, admits=wanted, histories=histories))
            wanted = {}
            for slot, ids, _ in chunks:
                at[slot] += len(ids)
            for slot in [s for s, _, samples in chunks if samples] + decodes:
                tokens[slot].append(next(new))
        return tokens


class Recorder:
    """A model that keeps the logits of every call."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.calls: list[torch.Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, ids: torch.Tensor, context: Context, cache: KVCache) -> Logits:
        logits = self._model(ids, context, cache)

        def record(rows: torch.Tensor) -> torch.Tensor:
            self.calls.append(logits(rows).clone())
            return logits(rows)

        return record


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    """A function that makes a `Bench` around a model, on a CPU device unless another kind is given."""
    runners = []

    def make(
        model: Model, page_size: int = 16, pages: int = 0, slots: int = 8, max_len: int = 256, **more: Any
    ) -> Bench:
        landed = threading.Event()
        device = more.get("device", CpuDevice)(landed.set)
        per_slot = -(-max_len // page_size)
        groups = len(model.kv_windows)
        count = pages or slots * (per_slot * groups + model.state_pages)
        shape = PageShape(model.kv_layers, page_size, model.kv_heads, model.head_dim, model.kv_dtype)
        cache = shape.allocate(count, torch.device("cpu"))
        for tensor in cache:
            tensor.fill_(float("nan"))
        runner = more.get("runner", Runner)(
            device=device,
            model=model,
            cache=cache,
            slots=slots,
            pages_per_slot=per_slot,
            wake=landed.set,
        )
        runners.append(runner)
        free = torch.randperm(count, generator=torch.Generator().manual_seed(count)).tolist()
        return Bench(runner, page_size, free, landed, groups=groups, state_pages=model.state_pages)

    yield make
    for runner in runners:
        runner.close()


@pytest.fixture(scope="session")
def make_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that writes a random model of the given kind to a directory, once per distinct request."""
    made: dict[str, Path] = {}

    def make(kind: str = "Llama", **more: Any) -> Path:
        key = f"{kind} {sorted(more.items())}"
        if key not in made:
            made[key] = tmp_path_factory.mktemp(kind)
            write_tiny(made[key], kind, more)
        return made[key]

    return make


def write_tiny(path: Path, kind: str, more: dict[str, Any]) -> None:
    import transformers

    torch.manual_seed(7)
    config = getattr(transformers, f"{kind}Config")(**(TINY | more))
    model = getattr(transformers, f"{kind}ForCausalLM")(config).float()
    for name, parameter in model.named_parameters():
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.3)
    model.save_pretrained(path)


@pytest.fixture
def add_scales(tmp_path: Path) -> Callable[..., Path]:
    """A function that makes a copy of a model whose layers have these tensors in `self_attn` as well."""

    def add(source: Path, scales: dict[str, torch.Tensor]) -> Path:
        from safetensors.torch import load_file, save_file

        copy = Path(shutil.copytree(source, tmp_path / "scaled", dirs_exist_ok=True))
        tensors = load_file(source / "model.safetensors")
        for layer in range(load_model_config(source).num_layers):
            tensors |= {
                f"model.layers.{layer}.self_attn.{name}": scale.clone() for name, scale in scales.items()
            }
        save_file(tensors, copy / "model.safetensors")
        return copy

    return add


def load(
    path: Path,
    dtype: torch.dtype = torch.float32,
    quantization: str = "none",
    kv_dtype: torch.dtype | None = None,
    attention: Callable[..., None] = paged_attention,
) -> Model:
    """The executor's model in a directory, on the CPU."""
    config = load_model_config(path)
    loader = Loader(Weights(path), torch.device("cpu"), dtype, quantization, kv_dtype, attention)
    return build_model(config, loader, config.max_position_embeddings)


@pytest.fixture(scope="session")
def load_model() -> Callable[..., Model]:
    return load


@pytest.fixture(scope="session")
def tiny(make_tiny: Callable[..., Path]) -> Model:
    """A random two-layer Llama."""
    return load(make_tiny())


@pytest.fixture
def recorder() -> type[Recorder]:
    return Recorder
