"""Launch, repair and end of the role graph."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import psutil
import pytest
from e2e.serving import Server

PROMPT = "Once upon a time"


def gone(processes):
    """Wait for the processes to end; those that have not after a minute."""
    return psutil.wait_procs(list(processes), timeout=60)[1]


def wait_for_death_and_return(server, title, old):
    """Wait until the role's process is another one and the server calls itself healthy."""
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline
        process = server.family().get(title)
        if (
            process is not None
            and process.pid != old
            and httpx.get(server.url + "/health").status_code == 200
        ):
            return
        time.sleep(0.05)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_process_socket_or_file(model_dir, sig):
    server = Server().wait_ready()
    server.complete(PROMPT, max_tokens=2)
    family, run_dir = server.family(), server.run_dir()
    assert {"gateway", "tokenizer", "scheduler", "executor", "detokenizer"} <= set(family)
    assert run_dir.stat().st_mode & 0o777 == 0o700
    del family["supervisor"]
    code = server.stop(sig)
    assert code == (-signal.SIGKILL if sig == signal.SIGKILL else 0)
    assert gone(family.values()) == []
    assert not run_dir.exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url + "/health")


def serve_and_fail(*args, **env):
    return subprocess.run(
        [sys.executable, "-m", "stretto.supervisor", "serve", *args],
        capture_output=True,
        text=True,
        env=os.environ | env,
    )


def test_a_role_that_fails_at_boot_ends_the_launch_with_its_own_words(model_dir, tmp_path):
    result = serve_and_fail("--port", "0", "--kv-memory", "nonsense", TMPDIR=str(tmp_path))
    assert result.returncode == 1
    assert "executor.0 did not start" in result.stderr
    assert "nonsense" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_named(model_dir):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = serve_and_fail("--port", str(port))
    assert result.returncode == 1
    assert f"127.0.0.1:{port}" in result.stderr


def test_a_context_beyond_the_models_is_refused_with_both_numbers(model_dir):
    result = serve_and_fail("--max-model-len", "100000")
    assert result.returncode == 1
    assert "100000" in result.stderr
    assert "8192" in result.stderr


@pytest.fixture(scope="module")
def patient(start):
    server = start()
    yield server
    server.stop()


def stream_and_kill(server, title):
    """Kill a role once a stream has begun; the SSE payloads the client got."""
    body = {"model": "SmolLM2-135M-Instruct", "prompt": PROMPT, "temperature": 0, "max_tokens": 150}
    body |= {"stream": True, "ignore_eos": True, "return_token_ids": True}
    victim = server.family()[title]
    payloads = []
    with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=None) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                payloads.append(line[6:])
                if len(payloads) == 5:
                    victim.kill()
    wait_for_death_and_return(server, title, victim.pid)
    return payloads


@pytest.mark.parametrize("title", ["executor", "scheduler", "detokenizer", "tokenizer"])
def test_a_stream_survives_the_death_of_a_role(patient, title):
    whole = patient.complete(PROMPT, max_tokens=150, ignore_eos=True)["choices"][0]["token_ids"]
    payloads = stream_and_kill(patient, title)
    assert payloads[-1] == "[DONE]"
    streamed = [i for p in payloads[:-1] for i in json.loads(p)["choices"][0].get("token_ids") or []]
    assert streamed == whole


@pytest.mark.parametrize("title", ["tokenizer", "gateway"])
def test_an_idle_role_that_is_killed_is_replaced(patient, title):
    victim = patient.family()[title]
    victim.kill()
    gone([victim])
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline
        try:
            answer = patient.complete(PROMPT, max_tokens=4)
            break
        except (httpx.HTTPError, AssertionError):
            time.sleep(0.05)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert patient.family()[title].pid != victim.pid


def test_health_tells_of_a_frozen_role(start):
    server = start("--heartbeat-timeout", "2")
    victim = server.family()["detokenizer"]
    victim.suspend()
    deadline = time.monotonic() + 60
    while httpx.get(server.url + "/health").status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    wait_for_death_and_return(server, "detokenizer", victim.pid)
    assert server.complete(PROMPT, max_tokens=4)["choices"][0]["finish_reason"] == "length"
    server.stop()
