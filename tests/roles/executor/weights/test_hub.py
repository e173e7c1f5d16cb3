from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download of `org/tiny` asks for. `files` maps names to contents."""

    files: ClassVar[dict[str, bytes]] = {}
    requests: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.requests.append(path)
        name = path.rpartition("/")[2]
        if "/tree/" in path:
            self.send(json.dumps([{"type": "file", **entry} for entry in self.entries("path")]).encode())
        elif path.startswith("/api/models/org/tiny"):
            body = {"id": "org/tiny", "sha": COMMIT, "siblings": self.entries("rfilename")}
            self.send(json.dumps(body).encode())
        elif path.startswith("/org/tiny/resolve/") and name in self.files:
            self.send(self.files[name], with_body)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def entries(self, key: str) -> list[dict[str, Any]]:
        return [
            {key: name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for name, data in self.files.items()
        ]

    def send(self, data: bytes, with_body: bool = True) -> None:
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, tiny: Callable[..., Any]) -> Iterator[ThreadingHTTPServer]:
    """A hub whose `org/tiny` is a Llama, with pickled weights beside the safe ones."""
    tiny("LlamaForCausalLM").save_pretrained(tmp_path / "made")
    Hub.files = {file.name: file.read_bytes() for file in (tmp_path / "made").iterdir()}
    Hub.files |= {"tokenizer.json": b"{}", "pytorch_model.bin": b"pickle"}
    Hub.requests = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def prepare(model: str, port: int, tmp_path: Path) -> tuple[int, str, str]:
    """Run the command in a process of its own: the client reads its settings when it is imported."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    command = [sys.executable, "-m", "stretto.roles.executor.weights.prepare", model, str(tmp_path / "cache")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout.strip(), done.stderr.strip().splitlines()[-1] if done.stderr else ""


def test_safe_files_are_fetched_once(tmp_path: Path, hub: ThreadingHTTPServer) -> None:
    status, directory, _ = prepare("org/tiny", hub.server_port, tmp_path)
    assert status == 0
    names = sorted(file.name for file in Path(directory).iterdir())
    assert names == ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
    Hub.requests.clear()
    assert prepare("org/tiny", hub.server_port, tmp_path) == (0, directory, "")
    assert Hub.requests == []


def test_an_unsupported_model_is_refused_before_its_weights_come(
    tmp_path: Path, hub: ThreadingHTTPServer
) -> None:
    Hub.files["config.json"] = b'{"architectures": ["MambaForCausalLM"]}'
    status, _, error = prepare("org/tiny", hub.server_port, tmp_path)
    assert status == 1
    assert "'MambaForCausalLM' is not supported" in error
    assert not any("model.safetensors" in path for path in Hub.requests)


def test_pickled_weights_alone_are_refused(tmp_path: Path, hub: ThreadingHTTPServer) -> None:
    del Hub.files["model.safetensors"]
    status, _, error = prepare("org/tiny", hub.server_port, tmp_path)
    assert status == 1
    assert "org/tiny has no safetensors weights" in error


def test_an_unknown_model_is_explained(tmp_path: Path, hub: ThreadingHTTPServer) -> None:
    status, _, error = prepare("org/other", hub.server_port, tmp_path)
    assert status == 1
    assert "has no model 'org/other', or it is private" in error


def test_a_hub_that_cannot_be_reached_is_explained(tmp_path: Path) -> None:
    status, _, error = prepare("org/tiny", 9, tmp_path)
    assert status == 1
    assert "cannot fetch org/tiny from the hub at http://127.0.0.1:9" in error
    assert "name its local directory" in error
