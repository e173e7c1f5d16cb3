"""A model directory that lacks only `tokenizer.json`: its files by reference, and the tokenizer converted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stretto.roles.executor.weights import convert, layout, sources
from stretto.roles.executor.weights.errors import ModelError

_CONVERTIBLE = ("tokenizer.model", "vocab.json")


def with_tokenizer(model_dir: Path, cache_dir: Path, progress: Callable[[str], None]) -> Path:
    """`model_dir` itself if it has a `tokenizer.json`, else a directory in the cache that adds one to it.

    The user's directory is never written to. Raises `ModelError` when weights or tokenizer are missing.
    """
    layout.check_model(model_dir)
    if layout.has_tokenizer(model_dir):
        return model_dir
    if not any((model_dir / name).exists() for name in _CONVERTIBLE):
        raise ModelError(
            f"{model_dir} has no tokenizer: neither tokenizer.json nor {' nor '.join(_CONVERTIBLE)}"
        )
    progress("converting the tokenizer (once; the next start finds it ready)")
    target = sources.overlay_dir(model_dir, cache_dir)
    return convert.make_once(target, lambda directory: _fill(model_dir, directory), progress)


def _fill(model_dir: Path, directory: Path) -> None:
    for file in model_dir.iterdir():
        (directory / file.name).symlink_to(file)
    _convert(model_dir, directory / "tokenizer.json")


def _convert(model_dir: Path, path: Path) -> None:
    from transformers import AutoTokenizer

    try:
        AutoTokenizer.from_pretrained(model_dir).backend_tokenizer.save(str(path))
    except Exception as error:
        raise ModelError(
            f"the tokenizer in {model_dir} cannot be converted ({error}); add a tokenizer.json to it"
        ) from None
