"""Makes model directories in the cache, so that a half-made one is never mistaken for a whole one.

A directory is built beside its final place, flushed to the disk, and renamed. A lock file lets one process
at a time build it; the others wait and find it made.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stretto.roles.executor.weights import gguf_config, gguf_tokenizer, gguf_weights, model_config, sources
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.gguf_file import GGUFFile

Progress = Callable[[str], None]


def convert_gguf(path: Path, cache_dir: Path, progress: Progress) -> Path:
    """Convert the GGUF file `path` unless that is done already; returns the model directory.

    Raises `ModelError` for a file that cannot be converted and for a disk that cannot hold the result.
    """
    target = sources.converted_dir(path, cache_dir)
    return make_once(target, lambda directory: _write_model(path, directory, progress), progress)


def make_once(target: Path, build: Callable[[Path], None], progress: Progress) -> Path:
    """Have `build` fill a directory that becomes `target`, unless there is a whole `target` already."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(target.name + ".lock"), progress):
            if not sources.is_whole(target):
                _make(target, build)
    except OSError as error:
        reason = error.strerror or error
        raise ModelError(
            f"cannot write {target}: {reason}; make room, or point STRETTO_CACHE elsewhere"
        ) from None
    return target


def _make(target: Path, build: Callable[[Path], None]) -> None:
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        build(partial)
        _seal(partial)
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
        _flush(target.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_model(path: Path, directory: Path, progress: Progress) -> None:
    progress(f"converting {path.name} (once; the next start finds it ready)")
    file = GGUFFile(path)
    try:
        config = _write_metadata(file, directory, progress)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # Any key of a foreign file may hold a value of any type and size.
        reason = f"{type(error).__name__}: {error}"
        raise ModelError(f"{path} contradicts itself in its metadata ({reason}); fetch it again") from error
    parsed = model_config.load_model_config(directory)
    dtype = gguf_weights.write_weights(file, parsed, directory / "model.safetensors", progress)
    _write_json(directory / "config.json", {**config, "torch_dtype": dtype})


def _write_metadata(file: GGUFFile, directory: Path, progress: Progress) -> dict[str, Any]:
    """Everything but the weights; returns the content of config.json."""
    config = gguf_config.config(file, "float16")
    _write_json(directory / "config.json", config)
    _write_json(directory / "generation_config.json", gguf_config.generation_config(file))
    tokenizer = gguf_tokenizer.tokenizer(file, progress).to_str(pretty=True)
    (directory / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    _write_json(directory / "tokenizer_config.json", gguf_tokenizer.tokenizer_config(file))
    return config


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _seal(directory: Path) -> None:
    """Write the manifest and flush everything, so that after a power cut the rename tells the truth."""
    files = [entry for entry in directory.iterdir() if entry.is_file() and not entry.is_symlink()]
    _write_json(directory / sources.MANIFEST, {file.name: file.stat().st_size for file in files})
    for path in (*files, directory / sources.MANIFEST, directory):
        _flush(path)


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another start is preparing this model: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
