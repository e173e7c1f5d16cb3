"""A fake server, on a thread or as the child of an `LLM`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stretto.roles.client.background import BackgroundLoop

FAKE = Path(__file__).with_name("fake.py")


@pytest.fixture(scope="session")
def fake() -> Any:
    """The module `fake.py`."""
    spec = importlib.util.spec_from_file_location("stretto_fake_server", FAKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def command() -> tuple[str, ...]:
    """Stands in for `python -m stretto.supervisor`."""
    return (sys.executable, str(FAKE))


@pytest.fixture
def uds(tmp_path: Path) -> str:
    """Where the fake server listens, if it does."""
    return str(tmp_path / "s")


@pytest.fixture
def background() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop()
    yield loop
    loop.close()


@pytest.fixture
def server(fake: Any, uds: str, background: BackgroundLoop) -> Any:
    """A fake server on a thread."""
    server = fake.FakeServer()
    background.call(server.open(uds))
    return server
