"""The synchronous face: the same requests from code without an event loop."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from stretto.roles.client.client import Client
from stretto.roles.client.errors import StrettoError


@pytest.fixture
def client(server: Any, uds: str) -> Iterator[Client]:
    with Client(uds=uds) as client:
        yield client


def test_a_stream_yields_its_deltas_and_then_has_its_completion(client: Client) -> None:
    stream = client.stream("say Pa ris")
    assert "".join(delta.text for delta in stream) == "Paris"
    assert stream.completion is not None
    assert stream.completion.finish_reason == "stop"


def test_streams_run_at_once_and_are_read_in_any_order(client: Client, server: Any) -> None:
    hanging = client.stream("hang a")
    assert client.stream("say b c").result().text == "bc"
    hanging.cancel()
    assert hanging.result().finish_reason == "abort"


def test_leaving_the_iteration_cancels(client: Client, server: Any) -> None:
    stream = client.stream("hang a")
    for _ in stream:
        break
    assert server.hear("cancel")["type"] == "cancel"


def test_an_interrupt_cancels_and_leaves_the_client_usable(client: Client, server: Any) -> None:
    def press_ctrl_c() -> None:
        server.hear("generate")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    finger = threading.Thread(target=press_ctrl_c)
    finger.start()
    with pytest.raises(KeyboardInterrupt):
        client.generate("hang a")
    finger.join()
    server.hear("cancel")
    assert client.generate("say again").text == "again"


def test_errors_reach_the_caller(client: Client) -> None:
    with pytest.raises(StrettoError, match="not that"):
        client.generate("refuse")


def test_it_works_inside_a_running_event_loop(client: Client) -> None:
    async def notebook_cell() -> str:
        return client.generate("say hi").text

    assert asyncio.run(notebook_cell()) == "hi"


def test_close_ends_the_thread_and_later_requests_say_so(client: Client) -> None:
    client.generate("say hi")
    client.close()
    assert not client._background._thread.is_alive()
    with pytest.raises(StrettoError, match="closed"):
        client.generate("say hi")


def test_close_wakes_whoever_waits(client: Client, server: Any) -> None:
    def close_when_it_waits() -> None:
        server.hear("generate")
        client.close()

    closer = threading.Thread(target=close_when_it_waits)
    closer.start()
    with pytest.raises(StrettoError, match="closed"):
        client.generate("hang a")
    closer.join()


def test_a_forgotten_client_is_collected_with_its_thread(server: Any, uds: str) -> None:
    client = Client(uds=uds)
    thread, gone = client._background._thread, weakref.ref(client)
    client.generate("say hi")
    del client
    gc.collect()
    assert gone() is None
    assert not thread.is_alive()


def test_a_wrong_address_is_told_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="http://127"):
        Client("ftp://example.com")
