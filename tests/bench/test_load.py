import asyncio
from collections.abc import Sequence
from typing import Any

from stretto.bench.answer import Answer, Usage
from stretto.bench.load import NO_IDS, Asking, Load
from stretto.bench.workload import Session, Turn

ASKING = Asking("m", token_ids=True)


class Wire:
    """Answers each request with a number of its own, once it is let go."""

    def __init__(self, errors: Sequence[str] = (), ids: bool = True) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.live = self.most = 0
        self._errors, self._ids = [*errors], ids

    async def ask(self, body: dict[str, Any]) -> Answer:
        self.bodies.append(body)
        answer = Answer(usage=Usage(0, 1), token_ids=[100 + len(self.bodies)] if self._ids else [])
        self.live += 1
        self.most = max(self.most, self.live)
        await asyncio.sleep(0)
        self.live -= 1
        answer.error = self._errors.pop(0) if self._errors else ""
        return answer

    async def close(self) -> None: ...

    @property
    def prompts(self) -> list[Any]:
        return [body["prompt"] for body in self.bodies]


def closed(wire: Wire, sessions: list[Session], concurrency: int) -> list[Answer]:
    answers: list[Answer] = []
    asyncio.run(Load(wire, ASKING, answers.append).closed(sessions, concurrency))
    return answers


def test_requests_are_greedy_streamed_and_as_long_as_they_are_told() -> None:
    assert ASKING.body([1, 2], 5) == {
        "model": "m",
        "prompt": [1, 2],
        "max_tokens": 5,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    assert "return_token_ids" not in Asking("m", token_ids=False).body("text", 5)
    assert "model" not in Asking(None, token_ids=True).body("text", 5)


def test_a_closed_loop_has_so_many_requests_live_and_no_more() -> None:
    wire = Wire()
    answers = closed(wire, [[Turn([i], 1)] for i in range(7)], concurrency=3)
    assert (len(answers), wire.most) == (7, 3)
    assert wire.prompts == [[i] for i in range(7)]


def test_a_turn_follows_all_that_was_said() -> None:
    wire = Wire()
    closed(wire, [[Turn([1], 1), Turn([2, 3], 1), Turn([4], 1)]], concurrency=1)
    assert wire.prompts == [[1], [1, 101, 2, 3], [1, 101, 2, 3, 102, 4]]


def test_a_conversation_ends_with_its_first_failure() -> None:
    wire = Wire(errors=["no"])
    answers = closed(wire, [[Turn([1], 1), Turn([2], 1)], [Turn([3], 1)]], concurrency=1)
    assert [answer.error for answer in answers] == ["no", ""]
    assert wire.prompts == [[1], [3]]


def test_a_conversation_needs_the_answers_tokens() -> None:
    answers = closed(Wire(ids=False), [[Turn([1], 1), Turn([2], 1)]], concurrency=1)
    assert [answer.error for answer in answers] == [NO_IDS]


def test_an_open_loop_sends_at_the_time_and_tells_how_late_it_was() -> None:
    answers: list[Answer] = []
    wire = Wire()
    arrivals = [0.0, 0.02, 0.05]
    sessions: list[Session] = [[Turn([i], 1)] for i in range(3)]
    asyncio.run(Load(wire, ASKING, answers.append).open(sessions, arrivals))
    assert wire.prompts == [[0], [1], [2]]
    assert all(answer.late >= 0 for answer in answers)
    start = {
        round(answer.sent - answer.late - arrival, 6)
        for answer, arrival in zip(answers, arrivals, strict=True)
    }
    assert len(start) == 1
