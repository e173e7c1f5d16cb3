"""The server's socket, bound before anything is loaded, so that a taken port is known at once."""

from __future__ import annotations

import socket
from pathlib import Path

from stretto.roles.actor import SetupError
from stretto.roles.config import Config

BACKLOG = 2048


def listen(config: Config) -> socket.socket:
    """Bind and listen; raises `SetupError`."""
    try:
        sock = _unix(config.uds) if config.uds else _tcp(config.host, config.port)
    except OSError as error:
        where = config.uds or f"{config.host}:{config.port}"
        option = "--uds" if config.uds else "--host or --port"
        raise SetupError(f"cannot listen on {where}: {error.strerror}; choose another {option}") from error
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock


def _tcp(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    return sock


def _unix(path: str) -> socket.socket:
    _clear(Path(path))
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    return sock


def _clear(path: Path) -> None:
    """Remove a socket that nobody serves any more; one that is served, or any other file, stays."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
