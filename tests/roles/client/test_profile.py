"""`stretto profile`, before a small HTTP server."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stretto.roles.client.profile import profile
from stretto.tests.roles.client.traces import LATE, trace

TRACE = trace(*LATE)


class Answers(ThreadingHTTPServer):
    """Notes each request as (path, key); answers with `answers`, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str | None]] = []
        self.answers: dict[str, tuple[int, Any]] = {
            "/start_profile": (200, {}),
            "/stop_profile": (200, TRACE),
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_POST(self) -> None:
        self.server.seen.append((self.path, self.headers["authorization"]))
        code, body = self.server.answers[self.path]
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def http() -> Iterator[Answers]:
    with Answers() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run(url: str, out: Path, **options: Any) -> tuple[int, str]:
    said = io.StringIO()
    console = Console(file=said, width=200)
    return profile(
        url, out, console=console, **{"seconds": 1.5, "sleep": lambda seconds: None, **options}
    ), said.getvalue()


def test_it_records_waits_keeps_the_trace_and_reports(http: Answers, tmp_path: Path) -> None:
    slept: list[float] = []
    code, said = run(http.url, tmp_path / "t.json", sleep=slept.append, key="k")
    assert (code, slept) == (0, [1.5])
    assert http.seen == [("/start_profile", "Bearer k"), ("/stop_profile", "Bearer k")]
    assert json.loads((tmp_path / "t.json").read_text()) == TRACE
    assert "What the device waited for" in said
    assert "perfetto" in said


def test_an_interrupt_ends_it_early(http: Answers, tmp_path: Path) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    assert run(http.url, tmp_path / "t.json", sleep=interrupted)[0] == 0
    assert (tmp_path / "t.json").exists()


def test_a_refusal_is_told_in_the_servers_words(http: Answers, tmp_path: Path) -> None:
    http.answers["/start_profile"] = 409, {"error": {"message": "being recorded already"}}
    code, said = run(http.url, tmp_path / "t.json")
    assert (code, said) == (1, "being recorded already\n")
    assert not (tmp_path / "t.json").exists()


def test_another_kind_of_server_is_told(http: Answers, tmp_path: Path) -> None:
    http.answers["/start_profile"] = 404, ["no"]
    assert "is it a Stretto server?" in run(http.url, tmp_path / "t.json")[1]


def test_that_nothing_listens_is_told(tmp_path: Path) -> None:
    code, said = run("http://127.0.0.1:9", tmp_path / "t.json")
    assert (code, said.split(";")[0]) == (1, "nothing listens at http://127.0.0.1:9")
