"""Processes that compile kernels beside the executor, on a start that does not find them in the cache.

Which of them compiles what comes about by itself, see `kernels.warm`. The command `python -m
stretto.roles.executor.compilers NETWORK PARENT` is such a process: it takes a `warm.Network` as JSON, its
parent's process id, and the cache from its environment. It says nothing: what fails there fails in the
executor again, which tells why.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from stretto.roles.actor import die_with_parent

if TYPE_CHECKING:
    from stretto.kernels.warm import Network


class Compilers:
    """`count` processes that compile what a network and its sampler call. They end when all is done."""

    def __init__(self, network: Network, count: int) -> None:
        parameters = [msgspec.json.encode(network).decode(), str(os.getpid())]
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", __name__, *parameters],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(count)
        ]

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self._processes]

    def dismiss(self) -> None:
        """End them now."""
        for process in self._processes:
            process.kill()
            process.wait()


def main(network: str, parent: str) -> None:
    """One such process."""
    die_with_parent()
    if os.getppid() != int(parent):
        return  # it has died already
    gc.disable()  # it does not live long
    from stretto.kernels import warm

    warm.compile_all(msgspec.json.decode(network, type=warm.Network).kernels() | warm.sampler())


if __name__ == "__main__":
    main(*sys.argv[1:])
