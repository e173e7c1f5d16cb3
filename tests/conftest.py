"""What tests of several roles need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stretto.roles.executor.weights.prepare import prepare


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The embedded model as a directory in Hugging Face layout, converted on first use."""
    cache = Path(os.environ.get("STRETTO_CACHE") or Path.home() / ".cache" / "stretto")
    return prepare("", cache, print)
