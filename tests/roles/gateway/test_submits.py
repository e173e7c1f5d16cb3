"""Jobs as messages."""

from __future__ import annotations

from stretto.roles.gateway.job import Job
from stretto.roles.gateway.submits import Uids, submits
from stretto.roles.messages import SamplingParams


def test_a_uid_holds_the_gateway_a_boot_and_a_counter() -> None:
    names = Uids(63)
    first, second, third = names.take(), names.take(5), names.take()
    assert first >> 56 == 63
    assert first & 0xFFFFFFFF == 0
    assert (second, third) == (first + 1, first + 6)
    assert third < 2**63
    assert Uids(63).take() != first


def test_each_prompt_is_a_message_and_has_a_uid_for_each_choice() -> None:
    job = Job(params=SamplingParams(n=2, best_of=3), prompts=("a", [5]), timeout=2.5)
    first, second = submits(job, 100, 7, 10.0)
    assert [(s.uid, s.gateway, s.prompt, s.deadline) for s in (first, second)] == [
        (100, 7, "a", 12.5),
        (103, 7, [5], 12.5),
    ]


def test_a_conversation_is_one_prompt() -> None:
    turn = {"role": "user", "content": "Hi"}
    (only,) = submits(Job(params=SamplingParams(n=2), messages=[turn]), 100, 7, 10.0)
    assert (only.uid, only.prompt, only.messages, only.deadline) == (100, None, [turn], None)


def test_what_is_picked_from_at_the_end_is_not_streamed_by_the_back_end() -> None:
    params = SamplingParams(n=1, best_of=2)
    beams = SamplingParams(n=1, best_of=2, use_beam_search=True)
    streamed = [submits(Job(params=p, prompts=("a",), stream=True), 1, 0, 0.0) for p in (params, beams)]
    assert [message.stream for (message,) in streamed] == [False, True]
