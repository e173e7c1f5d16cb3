"""From the model that the user named to a local directory in Hugging Face layout.

`locate` is cheap and is tried at every start; `prepare` does what is left to do, once. As a command,
`python -m stretto.roles.executor.weights.prepare MODEL CACHE_DIR`, it prints its progress to standard error,
with the error, if any, as the last line after `ERROR`, and the directory to standard output: the memory of a
conversion goes back to the system with its process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from stretto.roles.executor.weights import layout, sources
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.model_config import load_model_config

ERROR = "error: "
"""Before the one line of the command's output that says why it failed."""


def locate(model: str, cache_dir: Path) -> Path | None:
    """The directory of `model` if it is ready, else None: then `prepare` knows what to do or say."""
    try:
        return _ready(sources.identify(model), cache_dir)
    except (ModelError, OSError):
        return None


def prepare(model: str, cache_dir: Path, progress: Callable[[str], None]) -> Path:
    """Convert a GGUF file, fetch a hub model, or check a directory; returns the directory to be used.

    `progress` gets a line for each stage. Raises `ModelError` with what to do when that is impossible.
    """
    directory = locate(model, cache_dir) or _make(sources.identify(model), cache_dir, progress)
    load_model_config(directory)
    return directory


def _make(source: sources.Source, cache_dir: Path, progress: Callable[[str], None]) -> Path:
    """The imports here are slow (0.3 s and more) and needed only on a first start."""
    if isinstance(source, sources.HubModel):
        from stretto.roles.executor.weights import hub

        source = sources.Directory(hub.download(source.id, progress))
    if isinstance(source, sources.Directory):
        from stretto.roles.executor.weights import overlay

        return overlay.with_tokenizer(source.path, cache_dir, progress)
    from stretto.roles.executor.weights import convert

    return convert.convert_gguf(source.path, cache_dir, progress)


def _ready(source: sources.Source, cache_dir: Path) -> Path | None:
    if isinstance(source, sources.HubModel):
        snapshot = sources.hub_snapshot(source.id)
        return _ready(sources.Directory(snapshot), cache_dir) if snapshot else None
    if isinstance(source, sources.GGUF):
        return _whole(sources.converted_dir(source.path, cache_dir))
    if layout.has_model(source.path) and layout.has_tokenizer(source.path):
        return source.path
    return _whole(sources.overlay_dir(source.path, cache_dir))


def _whole(directory: Path) -> Path | None:
    return directory if sources.is_whole(directory) else None


def main(arguments: list[str]) -> int:
    """The command; returns its exit status."""
    if len(arguments) != 2:
        print("usage: python -m stretto.roles.executor.weights.prepare MODEL CACHE_DIR", file=sys.stderr)
        return 2
    model, cache_dir = arguments
    try:
        directory = prepare(model, Path(cache_dir), lambda line: print(line, file=sys.stderr, flush=True))
    except ModelError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"cannot prepare model {model!r} in {cache_dir}: {error}")
    print(directory)
    return 0


def _fail(reason: str) -> int:
    print(ERROR + " ".join(reason.split()), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
