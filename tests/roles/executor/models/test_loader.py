from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from stretto.kernels.linear import stepped
from stretto.kernels.linear.stepped import Stepped
from stretto.roles.executor.models.loader import Loader
from stretto.roles.executor.weights.layout import STEPS
from stretto.roles.executor.weights.safetensors_dir import Weights

CPU = torch.device("cpu")


def matrix(rows: int, bits: int) -> Stepped:
    words = torch.randint(-(2**31), 2**31, (rows, 64 * bits // 32)).int()
    return Stepped(words, *torch.randn(2, rows, 2).half(), 64)


def store(model_dir: Path, matrices: dict[str, Stepped], others: dict[str, torch.Tensor]) -> None:
    plain = {f"{name}.weight": stepped.weights(steps).half() for name, steps in matrices.items()}
    parts = {
        f"{name}.weight.{part}": getattr(steps, part).contiguous()
        for name, steps in matrices.items()
        for part in ("words", "scales", "minima")
    }
    save_file(plain | others, model_dir / "model.safetensors")
    save_file(parts, model_dir / STEPS)


def load(model_dir: Path, quantization: str = "none") -> Loader:
    return Loader(Weights(model_dir), CPU, torch.float32, quantization)


def test_layers_of_steps_compute_with_steps(tmp_path: Path) -> None:
    a, b = matrix(5, 4), matrix(3, 4)
    store(tmp_path, {"a": a, "b": b}, {"a.bias": torch.zeros(5), "b.bias": torch.ones(3)})
    loader, x = load(tmp_path), torch.eye(64)
    layer = loader.linear("a", "b")
    exact = torch.cat([stepped.weights(a), stepped.weights(b)]).T
    assert torch.equal(layer(x), exact + torch.tensor([0.0] * 5 + [1.0] * 3))
    assert list(loader.kernels) == ["linear 4-bit steps, float16", "rows of 4-bit steps, float16"]


def test_kernels_for_steps_are_known_before_the_layers(tmp_path: Path) -> None:
    store(tmp_path, {"a": matrix(5, 4), "b": matrix(3, 8), "c": matrix(3, 4)}, {"d": torch.zeros(1)})
    assert load(tmp_path).step_kernels() == ("4-bit steps, float16", "8-bit steps, float16")


@pytest.mark.parametrize("names", [("a", "c"), ("a", "plain"), ("plain",)])
def test_layers_that_are_not_of_steps_in_one_format_take_the_stored_weights(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    plain = torch.randn(4, 64).half()
    store(tmp_path, {"a": matrix(5, 4), "c": matrix(3, 8)}, {"plain.weight": plain})
    loader = load(tmp_path)
    stored = torch.cat([Weights(tmp_path).get(f"{name}.weight") for name in names])
    assert torch.equal(loader.linear(*names)(torch.eye(64)), stored.float().T)


def test_what_is_to_be_quantized_is_not_taken_as_steps(tmp_path: Path) -> None:
    store(tmp_path, {"a": matrix(5, 4)}, {})
    loader = load(tmp_path, "int8")
    loader.linear("a")
    assert list(loader.kernels) == ["linear int8", "rows of int8"]
