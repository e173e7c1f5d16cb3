"""What makes a directory a model: which files it must hold, and how to see that they are all there."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stretto.roles.executor.weights.errors import ModelError

INDEX = "model.safetensors.index.json"
SCRIPTS = "scripts.json"
"""What a scripted model has instead of weights; `models.scripted` says what is in it."""


STEPS = "stretto.steps"
"""The quantized matrices of a converted model once more, as steps: of each `<name>.words`, `.scales` and
`.minima`, as in `kernels.linear.stepped`. A safetensors file, but not by name: others would take it for
weights.
"""


def weight_files(model_dir: Path) -> list[Path]:
    """The safetensors files of a model: those its index lists, or `model.safetensors`, or all there are.

    `consolidated*.safetensors` hold the same weights under other names and are left out. Raises `ModelError`
    when one is missing, or when there are none though the model is not a scripted one.
    """
    files = _named_by_index(model_dir) or _found(model_dir)
    if not files and not (model_dir / SCRIPTS).exists():
        raise ModelError(f"{model_dir} holds no weights: {_no_weights(model_dir)}")
    for file in files:
        if not file.exists():
            raise ModelError(f"{model_dir} is incomplete: {file.name} is missing; fetch the model again")
    return files


def check_model(model_dir: Path) -> None:
    """Raise `ModelError` unless the configuration and all weight files are present, by name."""
    if not (model_dir / "config.json").exists():
        raise ModelError(f"{model_dir} is no model directory: it has no config.json")
    weight_files(model_dir)


def has_model(model_dir: Path) -> bool:
    """Whether `check_model` would pass."""
    try:
        check_model(model_dir)
    except ModelError:
        return False
    return True


def has_tokenizer(model_dir: Path) -> bool:
    """Whether the tokenizer is there in the form that the roles read."""
    return (model_dir / "tokenizer.json").exists()


def _named_by_index(model_dir: Path) -> list[Path]:
    index = model_dir / INDEX
    if not index.exists():
        return []
    try:
        names = set(msgspec.json.decode(index.read_bytes())["weight_map"].values())
        return [model_dir / name for name in sorted(names)]
    except (OSError, msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"cannot read {index}: {error}; fetch the model again") from None


def _found(model_dir: Path) -> list[Path]:
    single = model_dir / "model.safetensors"
    if single.exists():
        return [single]
    found = sorted(model_dir.glob("*.safetensors"))
    return [file for file in found if not file.name.startswith("consolidated")]


def _no_weights(model_dir: Path) -> str:
    if any(model_dir.glob("*.bin")) or any(model_dir.glob("*.pt*")):
        return "only pickled ones (.bin, .pt), which can run code: convert them to safetensors"
    return "no *.safetensors file"
