"""How many requests wait for their first event, over all gateways, and when one more is too many."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from stretto.roles.gateway.faults import QUEUE_FULL, Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.stream import Stream
from stretto.roles.metrics import Meter

CHARACTERS_PER_TOKEN = 4
"""Of text that is not tokenized yet: about that of English."""
WINDOW = 64
"""Departures from which the rate is taken."""
SHARE = 0.1
"""Of the queue that is to be gone before who was refused comes again."""
MAX_RETRY_SECONDS = 60


class Queue:
    """This gateway's part, counted on its row of the board, and the limits on the sum of all parts.

    A request counts from its submission to its first event. Those that are not streamed have none before
    their last, so as many as run at once are allowed on top.
    """

    def __init__(
        self, meter: Meter, meters: Sequence[Meter] = (), running: int = 0, requests: int = 0, tokens: int = 0
    ) -> None:
        """`meters` are those of all gateways; `requests` and `tokens` the limits, 0 for none."""
        self._meter, self._meters = meter, meters or (meter,)
        self._running, self._requests, self._tokens = running, requests, tokens
        self._waiting: dict[int, int] = {}
        self._departures: deque[float] = deque(maxlen=WINDOW)

    def check(self, job: Job, now: float) -> None:
        """Raises `Refused` where a request finds the queue full; an empty one takes any."""
        waiting = self._sum("requests_queued")
        tokens = self._sum("tokens_queued")
        if (self._requests and waiting >= self._requests + self._running) or (
            self._tokens and waiting and tokens + estimate(job) > self._tokens
        ):
            self._meter.add("requests_refused_total")
            raise Refused(replace(QUEUE_FULL, retry_after=self._retry_after(waiting, now)))

    def enter(self, stream: Stream) -> None:
        """A request has been submitted."""
        self._waiting[stream.uid] = tokens = estimate(stream.job)
        self._count(1, tokens)

    def leave(self, stream: Stream, now: float) -> None:
        """Its first event has come, or it has ended; once more does nothing."""
        if (tokens := self._waiting.pop(stream.uid, None)) is not None:
            self._count(-1, -tokens)
            self._departures.append(now)

    def _count(self, requests: int, tokens: int) -> None:
        self._meter.add("requests_queued", requests)
        self._meter.add("tokens_queued", tokens)

    def _sum(self, name: str) -> float:
        return sum(meter.value(name) for meter in self._meters)

    def _retry_after(self, waiting: float, now: float) -> int:
        """Seconds in which a share of the queue leaves, at the rate of the last departures."""
        if len(self._departures) < 2:
            return 1
        rate = len(self._departures) * len(self._meters) / max(1e-3, now - self._departures[0])
        return min(MAX_RETRY_SECONDS, max(1, math.ceil(SHARE * waiting / rate)))


def estimate(job: Job) -> int:
    """About how many tokens a request's prompts have."""
    if job.messages is not None:
        characters = sum(len(turn["content"]) for turn in job.messages)
        return 1 + characters // CHARACTERS_PER_TOKEN
    return sum(
        len(prompt) if isinstance(prompt, list) else 1 + len(prompt) // CHARACTERS_PER_TOKEN
        for prompt in job.prompts
    )
