"""Which kernels a start makes ready, and who compiles them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from stretto.kernels import warm
from stretto.kernels.warm import Network
from stretto.roles.executor import build_kernels
from stretto.roles.executor.build_kernels import compiling, network_of, spare_cores
from stretto.roles.executor.models.loader import Loader
from stretto.roles.executor.weights.model_config import ModelConfig, load_model_config
from stretto.roles.executor.weights.safetensors_dir import Weights

CPU = torch.device("cpu")


class Hired:
    """Stands in for `Compilers`."""

    def __init__(self, network: Network, count: int) -> None:
        self.network, self.count, self.dismissed = network, count, False

    def dismiss(self) -> None:
        self.dismissed = True


@pytest.fixture
def hired(monkeypatch: pytest.MonkeyPatch) -> list[Hired]:
    """Who is hired, instead of processes."""
    every: list[Hired] = []

    def hire(network: Network, count: int) -> Hired:
        every.append(Hired(network, count))
        return every[-1]

    monkeypatch.setattr(build_kernels, "Compilers", hire)
    monkeypatch.setattr(build_kernels, "spare_cores", lambda: 2)
    return every


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that are made ready at the end, in order."""
    names: list[str] = []

    def compile_all(kernels: Mapping[str, Any], progress: Any) -> None:
        names.extend(kernels)

    monkeypatch.setattr(warm, "compile_all", compile_all)
    return names


def loaded(path: Any, place: torch.device = CPU, quantization: str = "none") -> tuple[ModelConfig, Loader]:
    loader = Loader(Weights(str(path)), place, torch.float32, quantization)
    return load_model_config(str(path)), loader


def test_what_the_cache_lacks_is_compiled_while_the_weights_are_loaded(
    make_tiny: Any, hired: list[Hired], compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "are_cached", lambda kernels: False)
    config, loader = loaded(make_tiny())
    with compiling(config, loader, "none", print) as compile_rest:
        (compilers,) = hired
        assert (compilers.count, compilers.dismissed, compiled) == (2, False, [])
        loader.kernels |= warm.linear("float32")
        compile_rest()
    assert compilers.dismissed
    assert set(compiled) == set(compilers.network.kernels() | warm.linear("float32") | warm.sampler())


def test_nobody_is_hired_when_all_is_in_the_cache(
    make_tiny: Any, hired: list[Hired], compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "are_cached", lambda kernels: True)
    with compiling(*loaded(make_tiny()), "none", print):
        assert [compilers.count for compilers in hired] == [0]


def test_a_model_that_cannot_be_loaded_leaves_nobody_at_work(
    make_tiny: Any, hired: list[Hired], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "are_cached", lambda kernels: False)
    with pytest.raises(KeyError), compiling(*loaded(make_tiny()), "none", print):
        raise KeyError("weight")
    assert [compilers.dismissed for compilers in hired] == [True]


def test_on_a_gpu_there_is_nothing_to_compile(
    make_tiny: Any, hired: list[Hired], compiled: list[str]
) -> None:
    with compiling(*loaded(make_tiny(), torch.device("meta")), "none", print) as compile_rest:
        compile_rest()
    assert (hired, compiled) == ([], [])


@pytest.mark.parametrize(
    ("quantization", "weights"),
    [("none", ("float32",)), ("int8", ("int8",)), ("int4", ("int4", "int8"))],
)
def test_the_configuration_tells_what_the_layers_are(
    make_tiny: Any, quantization: str, weights: tuple[str, ...]
) -> None:
    config, loader = loaded(make_tiny(), quantization=quantization)
    assert network_of(config, loader, quantization) == Network(config.head_dim, 2, 4, weights)


def test_the_executor_keeps_a_core_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for cores in (1, 2, 3, 64):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cores=cores: set(range(cores)))
        counts.append(spare_cores())
    assert counts == [0, 1, 2, 2]
