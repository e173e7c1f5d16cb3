"""What is remembered is bounded, and the oldest goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.responses_store import Record, Store
from stretto.roles.gateway.stream import HungUp, Inbox


def record(id: str, status: str = "completed", text: str = "") -> Record:
    return Record({"id": id, "status": status, "text": text}, [], [{"role": "user", "content": "Hi"}])


def fault_of(call: Callable[[str], Any], id: str) -> Any:
    with pytest.raises(Refused) as refused:
        call(id)
    return refused.value.fault


def test_a_record_is_found_until_it_is_deleted() -> None:
    store, kept = Store(), record("a")
    store.put(kept)
    assert store.get("a") is kept
    store.delete("a")
    assert fault_of(store.get, "a").status == 404
    assert fault_of(store.delete, "a").code == "response_not_found"
    assert len(store) == 0


def test_the_oldest_goes_when_there_are_too_many() -> None:
    store = Store(max_count=2)
    for id in "abc":
        store.put(record(id))
    assert fault_of(store.get, "a").status == 404
    assert (store.get("b").response["id"], store.get("c").response["id"], len(store)) == ("b", "c", 2)


def test_the_oldest_go_when_they_take_too_much_memory() -> None:
    store = Store(max_bytes=1000)
    store.put(record("a", text="x" * 300))
    store.put(record("b", text="x" * 300))
    assert len(store) == 2
    store.put(record("c", text="x" * 700))
    assert [fault_of(store.get, id).status for id in "ab"] == [404, 404]
    store.put(record("d", text="x" * 2000))
    assert len(store) == 0


def test_a_record_that_grows_is_counted_anew() -> None:
    store, old, new = Store(max_bytes=1000), record("a"), record("b")
    store.put(old)
    store.put(new)
    new.response["text"] = "x" * 800
    store.measure(new)
    assert len(store) == 2
    store.grow(new, 500)
    assert len(store) == 0
    store.grow(old, 10**9)
    store.put(record("c", text="x" * 800))
    assert len(store) == 1


def test_only_what_ended_well_goes_on() -> None:
    store = Store()
    for status in ("completed", "incomplete", "failed", "cancelled", "queued", "in_progress"):
        store.put(record(status, status))
    assert store.previous("completed") == store.previous("incomplete") == record("x").turns
    for id in ("failed", "cancelled", "queued", "in_progress", "nobody"):
        assert fault_of(store.previous, id).code == "previous_response_not_found"


def test_what_is_forgotten_while_it_runs_is_cancelled() -> None:
    async def body() -> None:
        store, running = Store(max_count=1), record("a", "queued")
        inbox = running.inbox = Inbox()
        store.put(running)
        store.put(record("b"))
        with pytest.raises(HungUp):
            await inbox.get()

    asyncio.run(body())


def test_all_who_wait_hear_the_bell() -> None:
    async def body() -> None:
        rung = record("a", "queued")
        waiting = [asyncio.create_task(rung.changed()) for _ in range(2)]
        await asyncio.sleep(0)
        rung.ring()
        await asyncio.gather(*waiting)

    asyncio.run(body())
