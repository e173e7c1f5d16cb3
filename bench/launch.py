"""Start a real server for a bench, and look at it from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stretto.bench.scrape import counters

if TYPE_CHECKING:
    import psutil


class Launch:
    """A running `stretto serve`: its url, the seconds it took to be ready, its processes."""

    def __init__(self, process: subprocess.Popen[str], url: str, ready_seconds: float) -> None:
        self.process, self.url, self.ready_seconds = process, url, ready_seconds

    def family(self) -> dict[str, psutil.Process]:
        """Every process by title."""
        import psutil

        root = psutil.Process(self.process.pid)
        return {"supervisor": root} | {_title(child): child for child in root.children(recursive=True)}

    def metrics(self) -> dict[str, float]:
        """Samples of `/metrics`, summed over labels."""
        with urllib.request.urlopen(self.url + "/metrics") as answer:
            return counters(answer.read().decode())


def _title(process: psutil.Process) -> str:
    return " ".join(process.cmdline()).removeprefix("stretto: ").split(" -c ")[0].strip()


@contextmanager
def launch(*args: str, env: dict[str, str] | None = None) -> Iterator[Launch]:
    """Serve the embedded model on a free port with the given options; stopped on leaving."""
    read, write = os.pipe()
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "stretto.supervisor", "serve", *args, "--port", "0", "--ready-fd", str(write)],
        pass_fds=[write],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    os.close(write)
    try:
        with os.fdopen(read, "rb") as pipe:
            if pipe.read(6) != b"ready\n":
                raise RuntimeError("the server did not start; its own words are above")
        seconds = time.monotonic() - began
        assert process.stdout is not None
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match
        yield Launch(process, match.group(), seconds)
    finally:
        process.terminate()
        process.wait()
