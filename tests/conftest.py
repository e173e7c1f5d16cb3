"""What tests of several roles need."""

from __future__ import annotations

from pathlib import Path

import pytest

from stretto.roles.executor.weights.prepare import prepare
from stretto.roles.resolve import default_cache


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The embedded model as a directory in Hugging Face layout, converted on first use."""
    return prepare("", default_cache(), print)
