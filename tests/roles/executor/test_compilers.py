"""Processes that compile beside the executor."""

from __future__ import annotations

import gc
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from stretto.kernels import warm
from stretto.kernels.warm import Network
from stretto.roles.executor import compilers
from stretto.roles.executor.compilers import Compilers

NETWORK = Network(64, 3, 2, ("int8",))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of what `main` compiles, here, in this process."""
    names: list[str] = []
    monkeypatch.setattr(compilers, "die_with_parent", lambda: None)
    monkeypatch.setattr(warm, "compile_all", names.extend)
    yield names
    gc.enable()


def test_a_network_and_its_sampler_are_compiled(compiled: list[str]) -> None:
    compilers.main(msgspec.json.encode(NETWORK).decode(), str(os.getppid()))
    assert compiled == [*NETWORK.kernels(), *warm.sampler()]


def test_nothing_is_compiled_for_a_parent_that_is_gone(compiled: list[str]) -> None:
    compilers.main(msgspec.json.encode(NETWORK).decode(), "1000000000")
    assert compiled == []


def test_whoever_is_dismissed_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    hired = Compilers(NETWORK, 2)
    assert len(hired.pids) == 2
    hired.dismiss()
    for pid in hired.pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_they_die_with_the_executor(tmp_path: Path) -> None:
    code = (
        "from stretto.roles.executor.compilers import Compilers\n"
        "print(*Compilers((64, 3, 4, ()), 1).pids, flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
    ) as executor:
        assert executor.stdout is not None
        compiler = os.pidfd_open(int(executor.stdout.readline()))
        executor.kill()
        select.select([compiler], [], [])
    os.close(compiler)
    assert list(tmp_path.rglob("*.nbc")) == []
