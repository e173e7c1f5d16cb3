"""What makes a directory a model: which files it must hold, and how to see that they are all there."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stretto.roles.executor.weights.errors import ModelError

INDEX = "model.safetensors.index.json"
TOKENIZER_SOURCES = ("tokenizer.model", "vocab.json", "tokenizer_config.json")
"""Files from which transformers can make a `tokenizer.json`, when there is none."""


def weight_files(model_dir: Path) -> list[Path]:
    """The safetensors files of a model: those its index lists, or `model.safetensors`, or all there are.

    `consolidated*.safetensors` hold the same weights under other names and are left out. Raises `ModelError`
    when there are none or one is missing.
    """
    files = _named_by_index(model_dir) or _found(model_dir)
    if not files:
        raise ModelError(f"{model_dir} holds no weights: {_no_weights(model_dir)}")
    for file in files:
        if not file.exists():
            raise ModelError(f"{model_dir} is incomplete: {file.name} is missing; fetch the model again")
    return files


def check(model_dir: Path) -> None:
    """Raise `ModelError` unless the configuration, the tokenizer and all weight files are present by name."""
    for name in ("config.json", "tokenizer.json"):
        if not (model_dir / name).exists():
            raise ModelError(f"{model_dir} is not a complete model directory: {name} is missing")
    weight_files(model_dir)


def complete(model_dir: Path) -> bool:
    """Whether `check` would pass."""
    try:
        check(model_dir)
    except ModelError:
        return False
    return True


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
    return [
        file for file in sorted(model_dir.glob("*.safetensors")) if not file.name.startswith("consolidated")
    ]


def _no_weights(model_dir: Path) -> str:
    if any(model_dir.glob("*.bin")) or any(model_dir.glob("*.pt*")):
        return "only pickled ones (.bin, .pt), which can run code: convert them to safetensors"
    return "no *.safetensors file"
