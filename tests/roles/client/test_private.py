"""A directory that goes with its owner; what happens when the owner is killed is in `test_server`."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from stretto.roles.client.private import PrivateDirectory


def test_a_directory_is_ours_alone_until_it_is_let_go() -> None:
    fds = os.listdir("/proc/self/fd")
    directory = PrivateDirectory()
    path = Path(directory.path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (path / "file").touch()
    directory.let_go()
    assert os.read(directory.alive_fd, 1) == b""
    directory.wait()
    assert not path.exists()
    assert os.listdir("/proc/self/fd") == fds


def test_a_long_temporary_path_is_avoided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    directory = PrivateDirectory()
    assert Path(directory.path).parent == Path("/tmp")
    directory.let_go()
    directory.wait()
