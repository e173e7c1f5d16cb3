"""Clients that vanish leave nothing behind, wherever their request was."""

import json
import socket
import time
from socket import SHUT_RDWR

import pytest
import websockets.sync.client as ws

LONG_PROMPT = "word " * 1500
SHORT_PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def narrow(start):
    """One slot and small steps, so that requests queue and prefills last."""
    server = start("--max-seqs", "2", "--max-batched-tokens", "64", "--max-model-len", "2048")
    yield server
    server.stop()


def at_rest(metrics):
    live = ("requests_live", "requests_running", "requests_waiting", "streams_live", "connections_live")
    return not any(metrics["stretto_" + name] for name in live)


def wait_for(condition, server):
    """Metrics once the condition holds; a minute without it is a failure."""
    deadline = time.monotonic() + 60
    while not condition(metrics := server.metrics()):
        assert time.monotonic() < deadline, metrics
        time.sleep(0.02)
    return metrics


def post(server, **fields):
    """Send a completion request on a bare socket and return the socket, the answer unread."""
    body = {
        "model": "SmolLM2-135M-Instruct",
        "temperature": 0,
        "max_tokens": 400,
        "ignore_eos": True,
        **fields,
    }
    data = json.dumps(body).encode()
    host, port = server.url.removeprefix("http://").split(":")
    sock = socket.create_connection((host, int(port)))
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    sock.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return sock


def assert_nothing_is_left(server, pids):
    metrics = wait_for(at_rest, server)
    assert metrics["stretto_kv_pages_owned"] == 0
    assert (
        metrics["stretto_kv_pages_free"] + metrics["stretto_kv_pages_cached"] == metrics["stretto_kv_pages"]
    )
    assert {title: process.pid for title, process in server.family().items()} == pids


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("moment", ["queued", "prefill", "decode"])
def test_an_http_client_vanishes(narrow, stream, moment):
    pids = {title: process.pid for title, process in narrow.family().items()}
    before = narrow.metrics()
    busy = []
    if moment == "queued":
        busy = [post(narrow, prompt=SHORT_PROMPT, stream=True) for _ in range(2)]
        wait_for(lambda metrics: metrics["stretto_requests_running"] == 2, narrow)
    prompt = LONG_PROMPT if moment == "prefill" else SHORT_PROMPT
    victim = post(narrow, prompt=prompt, stream=stream)
    if moment == "queued":
        wait_for(lambda metrics: metrics["stretto_requests_waiting"] == 1, narrow)
    elif moment == "prefill":
        wait_for(lambda metrics: metrics["stretto_requests_running"] == 1, narrow)
    else:
        generated = before["stretto_generated_tokens_total"]
        wait_for(lambda metrics: metrics["stretto_generated_tokens_total"] > generated + 2, narrow)
    for sock in (victim, *busy):
        sock.close()
    assert_nothing_is_left(narrow, pids)
    after = narrow.metrics()
    cancelled = after["stretto_requests_cancelled_total"] - before["stretto_requests_cancelled_total"]
    assert cancelled == 1 + len(busy)


def test_a_websocket_vanishes_with_all_its_requests(narrow):
    pids = {title: process.pid for title, process in narrow.family().items()}
    with ws.connect(narrow.url.replace("http", "ws") + "/v1/stream") as socket:
        for i in range(5):
            request = {"prompt": SHORT_PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": i % 2 == 0}
            socket.send(json.dumps({"type": "generate", "id": str(i), "request": request}))
        wait_for(lambda metrics: metrics["stretto_requests_running"] == 2, narrow)
        socket.socket.shutdown(SHUT_RDWR)  # no closing handshake
    assert_nothing_is_left(narrow, pids)


def test_a_cancel_ends_one_request_and_no_other(narrow):
    with ws.connect(narrow.url.replace("http", "ws") + "/v1/stream") as socket:
        for name, tokens in (("stays", 30), ("goes", 1000)):
            request = {"prompt": SHORT_PROMPT, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
            socket.send(json.dumps({"type": "generate", "id": name, "request": request}))
        ends, told = {}, False
        while len(ends) < 2:
            frame = json.loads(socket.recv())
            if frame["id"] == "goes" and not told:
                socket.send(json.dumps({"type": "cancel", "id": "goes"}))
                told = True
            if frame["type"] != "delta":
                ends[frame["id"]] = frame
    assert ends["goes"]["finish_reason"] == "abort"
    assert ends["stays"]["finish_reason"] == "length"
    assert ends["stays"]["usage"]["completion_tokens"] == 30
    wait_for(at_rest, narrow)
