"""From what the user typed to a configuration that every role can take at its word."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from stretto.roles.actor import SetupError, die_with_parent
from stretto.roles.config import Config
from stretto.roles.executor.sim.models import simulated_model
from stretto.roles.executor.weights.model_config import load_model_config
from stretto.roles.executor.weights.prepare import ERROR, locate
from stretto.roles.graph import names
from stretto.roles.origins import origins
from stretto.roles.preflight import advice

EMBEDDED_NAME = "SmolLM2-135M-Instruct"


def resolve(config: Config, say: Callable[[str], None]) -> Config:
    """Fill in what depends on the model: its directory (converting it on first use), name and context length.

    `say` gets one line for each stage of long work. Raises `SetupError` for what the user can mend.
    """
    _check_cores(config)
    origins(config.allowed_origins)  # raises for what is none
    cache = Path(config.cache_dir) if config.cache_dir else default_cache()
    _make(cache)
    directory = locate(config.model, cache) or _prepare(config.model, cache, say)
    return msgspec.structs.replace(
        config,
        cache_dir=str(cache),
        model_dir=str(directory),
        max_model_len=_context_length(config, directory),
        served_model_name=config.served_model_name or _name(config.model),
    )


def _check_cores(config: Config) -> None:
    """Refuse to spin where roles would take the cores from each other."""
    cores, processes = len(os.sched_getaffinity(0)), len(names(config))
    if config.spin_us and cores <= processes:
        raise SetupError(
            f"--spin-us needs a core for each of the {processes} roles and one to spare, but there are "
            f"{cores}; leave it out"
        )


def _make(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        raise SetupError(
            f"cannot write to the cache directory {cache}: {advice(error)}; $STRETTO_CACHE names another"
        ) from error


def default_cache() -> Path:
    """$STRETTO_CACHE, or `stretto` under the user's cache directory."""
    if own := os.environ.get("STRETTO_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stretto"


def _prepare(model: str, cache: Path, say: Callable[[str], None]) -> Path:
    """Convert or fetch the model in a process of its own, whose memory goes back when it is done."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stretto.roles.executor.weights.prepare", model, str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    last = ""
    for line in process.stderr:
        last = line.strip() or last
        if not line.startswith(ERROR):
            say(line.rstrip())
    out = process.stdout.read().strip()
    if process.wait() != 0:
        own_words = last.removeprefix(ERROR) if last.startswith(ERROR) else ""
        raise SetupError(own_words or f"cannot prepare model {model or EMBEDDED_NAME!r} in {cache}: {last}")
    return Path(out.splitlines()[-1])


def _context_length(config: Config, directory: Path) -> int:
    trained = _trained_length(config, directory)
    if config.max_model_len > trained:
        raise SetupError(
            f"--max-model-len {config.max_model_len} is beyond the {trained} tokens the model was trained "
            f"for; choose at most {trained}"
        )
    return config.max_model_len or trained


def _trained_length(config: Config, directory: Path) -> int:
    """Of the model that runs: on a simulated device not the one whose tokenizer is used."""
    if config.device == "sim":
        return simulated_model(config.sim_model).max_position_embeddings
    return load_model_config(directory).max_position_embeddings


def _name(model: str) -> str:
    """What clients call the model: a hub id as it is, a path's last part without its suffix."""
    if not model:
        return EMBEDDED_NAME
    path = Path(model)
    return path.name.removesuffix(".gguf") if path.exists() else model
