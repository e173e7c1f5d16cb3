"""Fetches a model from the Hugging Face hub."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from tqdm import tqdm

from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.model_config import load_model_config

_WANTED = ("*.safetensors", "*.json", "*.jinja", "merges.txt", "tokenizer.model")
_UNWANTED = ("consolidated*", "*/*", "onnx*")
"""The same weights under other names, and subdirectories."""
_SECONDS_BETWEEN_LINES = 5.0


def download(model_id: str, progress: Callable[[str], None]) -> Path:
    """Fetch what is not there yet into the hub's own cache; returns the snapshot's directory.

    The configuration comes first, so that an unsupported model is refused before its weights are fetched.
    Raises `ModelError` when the hub cannot be reached, does not have the model or does not give it.
    """
    progress(f"asking the hub for {model_id}")
    with _explained(model_id):
        info = HfApi().model_info(model_id)
    _refuse_without_safetensors(model_id, [file.rfilename for file in info.siblings or []])
    with _explained(model_id):
        config = hf_hub_download(model_id, "config.json", revision=info.sha)
    load_model_config(Path(config).parent)
    with _explained(model_id):
        return Path(
            snapshot_download(
                model_id,
                allow_patterns=list(_WANTED),
                ignore_patterns=list(_UNWANTED),
                tqdm_class=_bar(progress),
            )
        )


@contextlib.contextmanager
def _explained(model_id: str) -> Iterator[None]:
    """Turns what the hub's client raises into `ModelError`.

    Which errors of which HTTP library come through depends on the client's version, hence the last clause.
    """
    try:
        yield
    except GatedRepoError:
        raise ModelError(
            f"the hub gives {model_id} only to those who accepted its terms: accept them on its page, "
            "then set HF_TOKEN to your access token"
        ) from None
    except RepositoryNotFoundError:
        raise ModelError(
            f"the hub at {constants.ENDPOINT} has no model {model_id!r}, or it is private; check the name, "
            "or set HF_TOKEN to an access token that may read it"
        ) from None
    except Exception as error:
        raise ModelError(
            f"cannot fetch {model_id} from the hub at {constants.ENDPOINT} ({_reason(error)}); check the "
            "network, or fetch the model elsewhere and name its local directory"
        ) from error


def _refuse_without_safetensors(model_id: str, names: list[str]) -> None:
    if not any(name.endswith(".safetensors") for name in names):
        raise ModelError(
            f"{model_id} has no safetensors weights; pickled ones can run code and are not loaded. "
            "Choose a model with safetensors, or a GGUF file of it"
        )


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _bar(progress: Callable[[str], None]) -> type[tqdm]:
    """A progress bar that tells `progress` a line now and then instead of drawing."""

    class Lines(tqdm):
        _told = 0.0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)  # huggingface_hub's own, to switch groups of bars off
            super().__init__(*args, **{**kwargs, "file": io.StringIO()})

        def display(self, *args: Any, **kwargs: Any) -> None:
            now = time.monotonic()
            if self.total and now - Lines._told >= _SECONDS_BETWEEN_LINES:
                Lines._told = now
                progress(f"fetching: {tqdm.format_meter(**self.format_dict | {'ncols': 0})}")

    return Lines
