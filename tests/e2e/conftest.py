"""A real server for tests: the whole role graph on the embedded model."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.serving import Server


@pytest.fixture(scope="session")
def start(model_dir: Path) -> Iterator[Callable[..., Server]]:
    """Start a server with the given options; it is stopped when the session ends, if not before."""
    servers: list[Server] = []

    def starter(*args: str) -> Server:
        servers.append(Server(*args))
        return servers[-1].wait_ready()

    yield starter
    for server in servers:
        server.stop()
        print(server.stderr)  # with -s: what the roles had to say


@pytest.fixture(scope="session")
def server(start: Callable[..., Server]) -> Server:
    """The server with default options that most tests share."""
    return start()
