"""The table of a server's health, from the answers of a small HTTP server."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from rich.console import Console

from stretto.roles.client.address import parse
from stretto.roles.client.snapshot import Snapshot
from stretto.roles.client.status import duration, roles_table, status, summarize

ROLES = {
    "gateway.0": {"state": "ready", "heartbeat_age_seconds": 0.5, "restarts": 0},
    "executor.0": {
        "state": "backoff",
        "heartbeat_age_seconds": None,
        "restarts": 2,
        "pid": 4711,
        "uptime_seconds": 3.2,
        "last_death": {"cause": "killed by SIGKILL", "seconds_ago": 61.0},
    },
}
METRICS = """\
# TYPE stretto_requests_running gauge
stretto_requests_running 3.0
# TYPE stretto_device_busy_seconds counter
stretto_device_busy_seconds_total 99.0
# TYPE stretto_device_idle_seconds counter
stretto_device_idle_seconds_total 1.0
"""
WELL = (200, {"status": "ok", "roles": ROLES})
ILL = (503, {"status": "unavailable", "missing": ["executor.0"], "roles": ROLES})


class Answers(ThreadingHTTPServer):
    """Answers `/health` with `health`, everything else with the metrics."""

    health: tuple[int, Any] = WELL


class Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_GET(self) -> None:
        code, body = self.server.health if self.path == "/health" else (200, METRICS)
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def http() -> Iterator[Answers]:
    with Answers(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def show(http: Answers, as_json: bool = False) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=120)
    code = status(f"http://127.0.0.1:{http.server_port}", as_json=as_json, console=console)
    return code, console.file.getvalue()  # type: ignore[attr-defined]


def test_a_well_server_is_a_table_and_zero(http: Answers) -> None:
    code, shown = show(http)
    assert code == 0
    assert "127.0.0.1" in shown
    assert ": ok" in shown
    assert [word for word in shown.split() if word in ROLES] == ["gateway.0", "executor.0"]
    assert "3 running, 0 waiting" in shown
    assert "1.0 % idle while there was work" in shown


def test_an_ill_server_is_a_table_and_one(http: Answers) -> None:
    http.health = ILL
    code, shown = show(http)
    assert code == 1
    assert ": unavailable" in shown
    assert "backoff" in shown
    assert "4711" in shown
    assert "killed by SIGKILL, 1 min 1 s ago" in shown


def test_names_are_whole_on_a_narrow_terminal() -> None:
    role = {
        "state": "ready",
        "heartbeat_age_seconds": 0.1,
        "restarts": 0,
        "pid": 12345,
        "uptime_seconds": 3599,
    }
    console = Console(file=io.StringIO(), width=80)
    where = parse("http://127.0.0.1:8000")
    console.print(roles_table(where, Snapshot(True, {"roles": {"detokenizer.15": role}}, {}, 0.0)))
    assert "detokenizer.15 │ ready │ 12345 │ 59 min 59 s │ 0.1 s ago │" in console.file.getvalue()  # type: ignore[attr-defined]


def test_programs_read_json(http: Answers) -> None:
    code, shown = show(http, as_json=True)
    told = json.loads(shown)
    assert code == 0
    assert told["roles"] == ROLES
    assert told["figures"]["stretto_requests_running"] == 3.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.9, "0 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90000.5, "1 d 1 h")],
)
def test_a_duration_is_told_in_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_another_server_is_told_from_ours(http: Answers) -> None:
    http.health = (200, "hello")
    code, shown = show(http)
    assert code == 1
    assert "does not answer as a Stretto server does" in shown


def test_nothing_listening_is_told(uds: str) -> None:
    console = Console(file=io.StringIO(), width=500)
    assert status(uds=uds, console=console) == 1
    assert "stretto serve" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_failure_is_told_beside_the_output_in_one_line(
    uds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(uds=uds, as_json=True) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), "nothing listens at" in err) == ("", 1, True)


def test_figures_are_summarized() -> None:
    figures = {
        "stretto_requests_waiting": 2.0,
        "stretto_kv_pages": 10.0,
        "stretto_kv_pages_owned": 3.0,
        "stretto_kv_pages_cached": 4.0,
        "stretto_prompt_tokens_total": 8.0,
        "stretto_cached_tokens_total": 2.0,
        "stretto_generated_tokens_total": 5.0,
        "stretto_steps_followed_total": 200.0,
        "stretto_steps_ahead_total": 199.0,
    }
    assert summarize(Snapshot(True, {}, figures, 0.0)) == [
        ("requests", "0 running, 2 waiting"),
        ("KV pages", "3 in use, 4 cached, of 10"),
        ("tokens", "8 prompt (25.0 % cached), 5 generated"),
        ("device", "- idle while there was work"),
        ("one step ahead", "99.5 % of steps"),
    ]
