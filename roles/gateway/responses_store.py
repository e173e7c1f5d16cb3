"""The responses that this gateway remembers: in memory, bounded, the oldest make room.

With several gateways each has its own: a response is known only where it was made.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

import orjson

from stretto.roles.gateway.faults import Refused, refusal
from stretto.roles.gateway.responses_bodies import Turn
from stretto.roles.gateway.stream import Inbox

MAX_COUNT = 1024
MAX_BYTES = 64 << 20
"""Of JSON: responses, the conversations before them, the events of those that can be streamed again."""


class Record:
    """One response, perhaps still on its way."""

    def __init__(self, response: dict[str, Any], items: list[dict[str, Any]], turns: list[Turn]) -> None:
        self.response, self.items, self.turns = response, items, turns
        """The object as it is now; its input; the conversation, the answer included once there is one."""
        self.size = 0
        self.inbox: Inbox | None = None
        """Of a response that runs in the background; hanging up cancels it."""
        self.task: asyncio.Task[None] | None = None
        self.events: list[bytes] | None = None
        """Those of its stream so far, where it can be streamed again."""
        self._bell = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Nothing is to come any more."""
        return self.response["status"] not in ("queued", "in_progress")

    def ring(self) -> None:
        """Tell all who wait that there is something new."""
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def changed(self) -> None:
        """Wait for the next `ring`."""
        await self._bell.wait()

    def cancel(self) -> None:
        """End it, if it runs in the background."""
        if self.inbox is not None:
            self.inbox.hang_up()


class Store:
    """All records, oldest first."""

    def __init__(self, max_count: int = MAX_COUNT, max_bytes: int = MAX_BYTES) -> None:
        self._max_count, self._max_bytes = max_count, max_bytes
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def put(self, record: Record) -> None:
        """Keep a record, and make room for it."""
        self._records[record.response["id"]] = record
        self.measure(record)

    def measure(self, record: Record) -> None:
        """Count a record's bytes anew: its response has changed."""
        kept = orjson.dumps([record.response, record.items, record.turns])
        self.grow(record, len(kept) + sum(map(len, record.events or ())) - record.size)

    def grow(self, record: Record, more: int) -> None:
        """A record takes so many bytes more; room is made for it. One that is gone stays gone."""
        if self._records.get(record.response["id"]) is record:
            record.size += more
            self._bytes += more
            self._make_room()

    def get(self, id: str) -> Record:
        """Raises `Refused`."""
        if id not in self._records:
            raise _unknown(id)
        return self._records[id]

    def previous(self, id: str) -> list[Turn]:
        """The conversation up to and with a response that has ended well. Raises `Refused`."""
        record = self._records.get(id)
        if record is None or record.response["status"] not in ("completed", "incomplete"):
            message = f"There is no response {id!r} here that could be continued."
            raise refusal(message, "previous_response_id", "previous_response_not_found")
        return record.turns

    def delete(self, id: str) -> None:
        """Forget a record, and cancel it. Raises `Refused`."""
        record = self.get(id)
        del self._records[id]
        self._bytes -= record.size
        record.cancel()

    def _make_room(self) -> None:
        while len(self._records) > self._max_count or (self._bytes > self._max_bytes and self._records):
            self.delete(next(iter(self._records)))


def _unknown(id: str) -> Refused:
    message = f"Response with id {id!r} not found; this server keeps the latest ones only."
    return refusal(message, "response_id", "response_not_found", status=404)
