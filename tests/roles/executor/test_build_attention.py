from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import flashinfer_double
import pytest
import torch

from stretto.roles.config import Config
from stretto.roles.executor import build_attention as module
from stretto.roles.executor.build_attention import build_attention, check_scales
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.models.kv_scales import KVScales

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def build(
    backend: Any, place: torch.device = GPU, dtype: torch.dtype = torch.bfloat16, head: int = 64
) -> Any:
    model: Any = SimpleNamespace(head_dim=head)
    return build_attention(Config(attention_backend=backend), model, place, dtype)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is there, and memory of a GPU is the host's."""
    monkeypatch.setitem(sys.modules, "flashinfer", flashinfer_double)
    monkeypatch.setattr(module, "FlashInferAttention", lambda library, place: (library, place))


def test_the_default_is_no_other_package(installed: None) -> None:
    assert build("auto") is build("auto", CPU) is build("triton") is None


def test_flashinfer_is_used_where_it_is_asked_for(installed: None) -> None:
    assert build("flashinfer") == (flashinfer_double, GPU)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(ConfigError, match="install the package flashinfer-python, or leave it out"):
        build("flashinfer")


@pytest.mark.parametrize("backend", ["triton", "flashinfer"])
def test_a_cpu_has_its_own(backend: str) -> None:
    with pytest.raises(
        ConfigError, match=f"--attention-backend {backend} is for --device cuda; leave it out"
    ):
        build(backend, CPU)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"dtype": torch.float32}, "computes in 16 bits"), ({"head": 80}, "has no kernel for heads of 80")],
)
def test_what_flashinfer_cannot_compute_is_refused(installed: None, change: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build("flashinfer", **change)


def test_a_layer_has_one_scale() -> None:
    check_scales([KVScales(torch.ones(2), torch.full((2,), 0.5)), KVScales()])
    with pytest.raises(ConfigError, match="the model has one a head"):
        check_scales([KVScales(torch.ones(2), torch.tensor([0.5, 0.25]))])
