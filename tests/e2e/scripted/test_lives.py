"""Deadlines, priorities, aborts and names of requests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import websockets.sync.client as ws
from e2e.scripted.asking import Answer, Failed
from e2e.scripted.shared import BROKEN, CHAT, LONG, SHORT
from e2e.scripted.trials import Bench

ENDLESS = {"max_tokens": 3000}
TIMED_OUT = {"type": "timeout_error", "code": "timeout", "param": None}


@contextmanager
def blocked(bench: Bench) -> Iterator[Future[Answer]]:
    """The only slot is taken, by a request that is called "blocker", and the device stands still."""
    with ThreadPoolExecutor(1) as pool, bench.held("executor"):
        future = pool.submit(bench.ask, LONG, request_id="blocker", **ENDLESS)
        bench.wait(lambda metrics: metrics["requests_running"] == 1, [future])
        yield future


def abort(bench: Bench, name: str) -> int:
    return bench.asker.post("/abort", {"request_id": name})["aborted"]


def payloads(lines: Iterator[str]) -> Iterator[str]:
    return (line[6:] for line in lines if line.startswith("data: "))


@contextmanager
def streaming(bench: Bench, **fields: Any) -> Iterator[Iterator[str]]:
    """The payloads of a long stream, which has begun."""
    body = {"prompt": bench.shelf.prompt(LONG), "temperature": 0, "stream": True, **ENDLESS, **fields}
    with bench.asker.http.stream("POST", "/v1/completions", json=body) as answer:
        rest = payloads(answer.iter_lines())
        first = next(rest)
        yield itertools.chain([first], rest)


def test_a_deadline_while_decoding_ends_the_stream_in_an_error(narrow: Bench) -> None:
    with streaming(narrow, timeout=3) as rest, narrow.held("executor"):
        *said, last = rest
    assert all(json.loads(chunk)["choices"][0]["finish_reason"] is None for chunk in said)
    assert json.loads(last)["error"] == TIMED_OUT | {"message": json.loads(last)["error"]["message"]}
    narrow.rest()


@pytest.mark.parametrize("stream", [False, True])
def test_a_deadline_before_the_first_token_is_a_408(narrow: Bench, stream: bool) -> None:
    with narrow.held("executor"), pytest.raises(Failed) as failed:
        narrow.ask(SHORT, stream=stream, timeout=0.2)
    assert failed.value.status == 408
    assert failed.value.error.items() >= TIMED_OUT.items()
    narrow.rest()


@pytest.mark.parametrize("stream", [False, True])
def test_a_deadline_while_queued_is_a_408(narrow: Bench, stream: bool) -> None:
    with blocked(narrow) as blocker:
        with pytest.raises(Failed) as failed:
            narrow.ask(SHORT, stream=stream, timeout=0.2)
        assert not blocker.done()
        assert narrow.wait(lambda metrics: metrics["requests_waiting"] == 0)["requests_running"] == 1
        abort(narrow, "blocker")
    assert failed.value.status == 408
    assert failed.value.error.items() >= TIMED_OUT.items()
    narrow.rest()


def test_logits_that_are_no_numbers_fail_their_request_alone(roomy: Bench) -> None:
    good, bad, other = roomy.ask_together([SHORT, BROKEN, CHAT])
    with pytest.raises(Failed) as failed:
        bad.result()
    assert (failed.value.status, failed.value.error["code"]) == (500, "nan_logits")
    assert (good.result(), other.result()) == (roomy.right(SHORT), roomy.right(CHAT))
    roomy.rest()


def test_a_deadline_that_is_met_changes_nothing(narrow: Bench) -> None:
    assert narrow.ask(SHORT, timeout=60) == narrow.right(SHORT)


def test_the_most_urgent_goes_first_and_equals_in_order(narrow: Bench) -> None:
    prompt, url = narrow.shelf.prompt(SHORT), narrow.server.url.replace("http", "ws")
    priorities = {"late": 3, "first": -1, "second": 0, "third": 0, "last": 3}
    with ws.connect(url + "/v1/stream") as socket:
        with blocked(narrow):
            for name, priority in priorities.items():
                request = {"prompt": prompt, "priority": priority, "stream": False}
                socket.send(json.dumps({"type": "generate", "id": name, "request": request}))
            narrow.wait(lambda metrics: metrics["requests_waiting"] == len(priorities))
            abort(narrow, "blocker")
        order = [json.loads(socket.recv())["id"] for _ in priorities]
    assert order == ["first", "second", "third", "late", "last"]


def test_a_request_id_may_be_used_again_and_twice_at_once(narrow: Bench) -> None:
    body = {"prompt": narrow.shelf.prompt(SHORT), "temperature": 0, "request_id": "twin"}
    for _ in range(2):
        assert narrow.asker.post("/v1/completions", body)["id"] == "twin"
    twins = narrow.at_once([lambda: narrow.ask(SHORT, request_id="twin")] * 2)
    for twin in twins:
        assert twin.result() == narrow.right(SHORT)


def test_an_abort_ends_a_stream_with_what_it_has(narrow: Bench) -> None:
    with streaming(narrow, request_id="going", return_token_ids=True) as rest:
        assert abort(narrow, "going") == 1
        *said, last, done = rest
    (end,) = json.loads(last)["choices"]
    assert end["finish_reason"] == "abort"
    assert done == "[DONE]"
    text = "".join(json.loads(chunk)["choices"][0]["text"] for chunk in said)
    assert LONG.text.startswith(text)
    assert 0 < len(text) < len(LONG.text)
    narrow.rest()


def test_an_abort_ends_what_is_queued_and_all_of_one_name(narrow: Bench) -> None:
    with ThreadPoolExecutor(2) as pool, blocked(narrow) as blocker:
        queued = [pool.submit(narrow.ask, SHORT, request_id="twin") for _ in range(2)]
        narrow.wait(lambda metrics: metrics["requests_waiting"] == 2, queued)
        assert abort(narrow, "twin") == 2
        for future in queued:
            choice = future.result().only
            assert (choice.text, choice.ids, choice.finish) == ("", [], "abort")
        assert abort(narrow, "blocker") == 1
        assert blocker.result().only.finish == "abort"
    narrow.rest()


def test_an_abort_of_nobody_is_no_mistake(narrow: Bench) -> None:
    assert abort(narrow, "nobody") == 0


@pytest.mark.parametrize("stop", ["", [""], ["a", ""]])
def test_an_empty_stop_is_refused(narrow: Bench, stop: str | list[str]) -> None:
    with pytest.raises(Failed) as failed:
        narrow.ask(SHORT, stop=stop)
    assert failed.value.status == 400
    assert failed.value.error["param"].startswith("stop")


@pytest.mark.parametrize("wanted", [True, False])
def test_a_client_may_come_back_while_its_request_is_queued(narrow: Bench, wanted: bool) -> None:
    url = narrow.server.url.replace("http", "ws") + "/v1/stream"
    request = {"prompt": narrow.shelf.prompt(SHORT), "temperature": 0, "stream": False}
    again = {"type": "resume", "id": "b", "request": request, "tokens": []}
    with ws.connect(url) as lost, ws.connect(url) as back:
        with blocked(narrow) as blocker:
            lost.send(json.dumps({"type": "generate", "id": "a", "request": request, "resumable": True}))
            handle = json.loads(lost.recv())["stream"]
            narrow.wait(lambda metrics: metrics["requests_waiting"] == 1)
            lost.socket.shutdown(2)
            back.send(json.dumps({**again, "stream": handle}))
            if not wanted:
                back.send(json.dumps({"type": "cancel", "id": "b"}))
                assert json.loads(back.recv())["finish_reason"] == "abort"
                assert not blocker.done()
            abort(narrow, "blocker")
        assert not wanted or json.loads(back.recv())["text"] == SHORT.text
    narrow.rest()
