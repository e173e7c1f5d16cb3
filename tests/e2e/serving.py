"""One launch of the real server, started as a user starts it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil

MODEL = "SmolLM2-135M-Instruct"


class Server:
    """One launch of `stretto serve`; `url` once it is ready, `stderr` when it is over."""

    def __init__(self, *args: str) -> None:
        self._read, write = os.pipe()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "stretto.supervisor",
                "serve",
                *args,
                "--port",
                "0",
                "--ready-fd",
                str(write),
            ],
            pass_fds=[write],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(write)
        self.url = self.stderr = ""

    def wait_ready(self) -> "Server":
        with os.fdopen(self._read, "rb") as pipe:
            if pipe.read(6) != b"ready\n":
                raise RuntimeError("the server did not start: " + self.process.communicate()[1])
        assert self.process.stdout is not None
        greeting = self.process.stdout.readline()
        match = re.search(r"http://\S+", greeting)
        assert match, greeting
        self.url = match.group()
        return self

    def family(self) -> dict[str, psutil.Process]:
        """Every process of the launch, by title: "stretto: scheduler" becomes "scheduler"."""
        found = {"supervisor": psutil.Process(self.process.pid)}
        for child in found["supervisor"].children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # a zombie has no title
                title = " ".join(child.cmdline())
                found[title.removeprefix("stretto: ").strip()] = child
        return found

    def run_dir(self) -> Path:
        """The private directory of the launch, from the janitor's command line."""
        janitor = next(p for title, p in self.family().items() if "stretto-janitor" in title)
        return Path(janitor.cmdline()[-1])

    def metrics(self) -> dict[str, float]:
        """Every sample without its labels; samples of several processes are summed."""
        values: dict[str, float] = {}
        for line in httpx.get(self.url + "/metrics").text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                key = name.split("{")[0]
                values[key] = values.get(key, 0.0) + float(value)
        return values

    def complete(self, prompt: str | list[int], **fields: Any) -> dict[str, Any]:
        """One greedy completion with token ids."""
        body = {"model": MODEL, "prompt": prompt, "temperature": 0, "return_token_ids": True, **fields}
        answer = httpx.post(self.url + "/v1/completions", json=body, timeout=None)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(sig)
        self.stderr += self.process.communicate()[1]
        return self.process.returncode
