"""A server of one's own: how it starts, fails to start, and ends."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stretto.roles.client.client import Client
from stretto.roles.client.errors import StrettoError
from stretto.roles.client.server import Server, server


def test_a_server_serves_until_the_block_ends(command: tuple[str, ...]) -> None:
    with server("tiny", command=command, quiet=True) as uds:
        directory = Path(uds).parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        with Client(uds=uds) as client:
            assert client.generate("say hi").text == "hi"
    assert not directory.exists()


def test_start_up_progress_is_shown(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    Server("tiny", command=command).close()
    assert capsys.readouterr().err == "loading weights\n"


def test_a_server_that_cannot_start_says_why(command: tuple[str, ...]) -> None:
    with pytest.raises(StrettoError, match=r"exit status 1[^$]*no such model"):
        Server("broken", command=command, quiet=True)


def test_a_reason_that_was_shown_is_not_repeated(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StrettoError, match=r"^the server is gone \(exit status 1\)$"):
        Server("broken", command=command)
    assert capsys.readouterr().err.count("no such model") == 1


def test_a_command_that_does_not_exist_is_told(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(StrettoError, match="cannot run"):
        Server("tiny", command=[str(tmp_path / "nothing")])
    assert os.listdir("/proc/self/fd") == before


def test_close_may_be_called_twice(command: tuple[str, ...]) -> None:
    own = Server("tiny", command=command, quiet=True)
    own.close()
    own.close()
    assert own.obituary() == "the server is gone (exit status 0); its last words:\nloading weights"


def test_a_server_ends_when_its_parent_is_killed(command: tuple[str, ...]) -> None:
    script = textwrap.dedent(f"""
        from stretto.roles.client.server import Server
        server = Server("tiny", command={command!r}, quiet=True)
        print(server._child._process.pid, server._child._directory._janitor.pid, server.uds, flush=True)
        input()
    """)
    line, pipe = [sys.executable, "-c", script], subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe) as parent:
        assert parent.stdout is not None
        *pids, uds = parent.stdout.readline().decode().split()
        fds = [os.pidfd_open(int(pid)) for pid in pids]
        assert select.select(fds, [], [], 0)[0] == []
        parent.kill()
        for fd in fds:
            assert select.select([fd], [], [], 60)[0] == [fd]
            os.close(fd)
    assert not Path(uds).parent.exists()
