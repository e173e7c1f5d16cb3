"""The weights of a model directory, mapped into memory and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from stretto.kernels.linear.stepped import Stepped
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.layout import STEPS, weight_files


class Weights:
    """All tensors of one or many safetensors files, by name, lazily.

    A tensor is a view of the mapped file, in the stored dtype: getting one reads nothing, pages come in
    when used and are shared between processes. Treat it as read-only. Views stay valid after `close`.
    Raises `ModelError` for a missing or damaged file.
    """

    def __init__(self, model_dir: str | Path) -> None:
        self.model_dir = Path(model_dir)
        self._files: dict[str, Any] = {}
        for path in weight_files(self.model_dir):
            file = _open(path)
            self._files.update(dict.fromkeys(file.keys(), file))
        steps = self.model_dir / STEPS
        self._steps = _open(steps) if steps.exists() else None
        self._stepped = frozenset(self._steps.keys()) if self._steps else frozenset()

    def names(self) -> frozenset[str]:
        """The names of all tensors."""
        return frozenset(self._files)

    def get(self, name: str) -> torch.Tensor:
        """The tensor called `name`, on the CPU."""
        file = self._files.get(name)
        if file is None:
            raise ModelError(
                f"{self.model_dir} has no tensor {name!r}; its weights do not fit its config.json"
            )
        return file.get_tensor(name)

    def steps(self, name: str) -> Stepped | None:
        """The matrix called `name` as steps, if it is stored so as well."""
        if self._steps is None or f"{name}.words" not in self._stepped:
            return None
        words, scales, minima = (
            self._steps.get_tensor(f"{name}.{part}") for part in ("words", "scales", "minima")
        )
        return Stepped(words, scales, minima, self.get(name).shape[1])

    def close(self) -> None:
        """Let go of the files."""
        self._files.clear()
        self._steps, self._stepped = None, frozenset()


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} is damaged ({error}); fetch or convert the model again") from None
