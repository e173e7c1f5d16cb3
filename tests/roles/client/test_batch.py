"""A bounded number of requests at a time, and one end for all when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from stretto.roles.client.batch import run
from stretto.roles.client.errors import ConnectionFailed, StrettoError, invalid


class FakeClient:
    """Answers with the prompt, after `prompt` turns of the loop; refuses "bad"."""

    def __init__(self) -> None:
        self.live, self.most_live, self.cancelled = 0, 0, 0

    async def generate(self, prompt: int | str) -> Any:
        if prompt == "lost":
            raise ConnectionFailed(prompt, "connection_lost")
        if isinstance(prompt, str):
            raise invalid(prompt)
        self.live += 1
        self.most_live = max(self.most_live, self.live)
        try:
            for _ in range(prompt):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.live -= 1
        return prompt


def go(prompts: list[Any], ahead: int, drawn: list[int] | None = None) -> tuple[FakeClient, list[Any]]:
    client: Any = FakeClient()
    arrived: list[Any] = []

    def requests() -> Iterator[dict[str, Any]]:
        for place, prompt in enumerate(prompts):
            if drawn is not None:
                drawn.append(place)
            yield {"prompt": prompt}

    try:
        asyncio.run(run(client, requests(), ahead, lambda *arrival: arrived.append(arrival)))
    except StrettoError as error:
        arrived.append(error.message)
    return client, arrived


def test_every_answer_arrives_with_its_place() -> None:
    _, arrived = go([5, 1, 3], ahead=3)
    assert arrived == [(1, 1), (2, 3), (0, 5)]


@pytest.mark.parametrize("ahead", [1, 4])
def test_no_more_than_so_many_are_unanswered(ahead: int) -> None:
    client, arrived = go([3, 1, 4, 1, 5] * 20, ahead)
    assert client.most_live == ahead
    assert sorted(place for place, _ in arrived) == list(range(100))


def test_a_lost_connection_is_no_prompts_fault() -> None:
    _, arrived = go([1, "lost", 1], ahead=1)
    assert arrived == [(0, 1), "lost"]


def test_a_failure_names_its_place_and_cancels_the_rest() -> None:
    drawn: list[int] = []
    client, arrived = go([1, 1000, 1000, "bad", *[1] * 50], ahead=3, drawn=drawn)
    assert arrived == [(0, 1), "prompt 3: bad"]
    assert client.cancelled == 2
    assert drawn == [0, 1, 2, 3]
