"""Messages to the detokenizers, in an order they can handle."""

from __future__ import annotations

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler import outbox
from stretto.roles.scheduler.outbox import Outbox


def opened(uid: int, prompt_ids: bytes = b"") -> m.Open:
    return m.Open(uid, 3, m.Output(0, True, prompt_ids=prompt_ids))


def tokens(box: Outbox, uids: list[int], first: int = 0) -> None:
    count = len(uids)
    box.tokens(np.array(uids, np.int64), np.arange(count, dtype=np.int32) + 100, np.full(count, first))


def test_one_message_carries_what_one_step_brought() -> None:
    box = Outbox(1)
    box.open(opened(1))
    tokens(box, [1, 2], first=4)
    box.end(m.End(2, "length"))
    assert box.take() == [
        (
            0,
            m.Tokens(
                [opened(1)],
                np.array([1, 2], np.int64).tobytes(),
                np.array([100, 101], np.int32).tobytes(),
                np.array([4, 4], np.int32).tobytes(),
                [m.End(2, "length")],
            ),
        )
    ]
    assert box.take() == []


def test_a_uid_that_comes_again_is_announced_after_its_end() -> None:
    box = Outbox(1)
    tokens(box, [1, 2])
    box.end(m.End(2, "length"))
    box.open(opened(3))
    box.open(opened(2))
    messages = [message for _, message in box.take()]
    assert [[one.uid for one in message.opens] for message in messages] == [[3], [2]]
    tokens(box, [1])
    box.open(opened(1))
    assert [len(message.opens) for _, message in box.take()] == [0, 1]


def test_a_second_step_needs_a_second_message() -> None:
    box = Outbox(1)
    tokens(box, [1, 2])
    tokens(box, [1, 2], first=1)
    box.end(m.End(1, "stop"))
    messages = [message for _, message in box.take()]
    assert [len(message.uids) // 8 for message in messages] == [2, 2]
    assert [message.ends for message in messages] == [[], [m.End(1, "stop")]]


def test_tokens_that_nobody_waits_for_are_told_some_steps_at_a_time_or_with_what_somebody_waits_for() -> None:
    box = Outbox(1)

    def step(first: int, patient: bool = True) -> int:
        box.tokens(np.array([1]), np.array([7], np.int32), np.array([first]), patient=patient)
        return len(box.take())

    every = [step(first) for first in range(2 * outbox.PATIENCE)]
    assert every == ([0] * (outbox.PATIENCE - 1) + [outbox.PATIENCE]) * 2
    assert [step(32), step(33, patient=False), step(34)] == [0, 2, 0]
    box.end(m.End(1, "length"))
    ((_, last),) = box.take()
    assert (np.frombuffer(last.indices, np.int32).tolist(), last.ends) == ([34], [m.End(1, "length")])
    for urgent in (opened(2), m.PromptLogprobs(2, 1, b"1111", b"2222")):
        assert step(35) == 0
        box.open(urgent) if isinstance(urgent, m.Open) else box.score(urgent)
        assert box.take()
    assert step(36) == 0
    box.hit(2, 8)
    assert len(box.take()) == 2


def test_what_waits_for_a_detokenizer_that_died_is_told_to_the_others_alone() -> None:
    box = Outbox(2)
    for first in (0, 1):
        uids = np.array([2, 3]) if first else np.array([2])
        entries = [m.TokenLogprobs(uid, -0.5, 2) for uid in uids.tolist()]
        box.tokens(uids, np.full(len(uids), 7, np.int32), np.full(len(uids), first), entries, patient=True)
    box.forget_tokens(0)
    box.hit(3, 1)
    sent = box.take()
    assert [index for index, _ in sent] == [1, 1]
    assert np.frombuffer(sent[0][1].uids, np.int64).tolist() == [3]
    assert [entry.uid for entry in sent[0][1].logprobs] == [3]


def test_each_detokenizer_gets_its_own_and_only_when_there_is_something() -> None:
    box = Outbox(3)
    box.open(opened(4))
    tokens(box, [4, 6, 7])
    box.end(m.End(6, "length"))
    sent = dict(box.take())
    assert sorted(sent) == [0, 1]
    assert np.frombuffer(sent[0].uids, np.int64).tolist() == [6]
    assert np.frombuffer(sent[0].ids, np.int32).tolist() == [101]
    assert sent[0].ends == [m.End(6, "length")]
    assert np.frombuffer(sent[1].uids, np.int64).tolist() == [4, 7]
    assert sent[1].opens == [opened(4)]


def test_scores_and_hits_come_before_the_tokens_they_belong_to() -> None:
    box = Outbox(2)
    tokens(box, [2])
    part, entry = m.PromptLogprobs(3, 1, b"1111", b"2222"), m.TokenLogprobs(3, -0.5, 2)
    box.score(part)
    box.hit(3, 8)
    box.tokens(np.array([3, 4]), np.array([7, 8], np.int32), np.array([0, 5]), [entry])
    sent = box.take()
    assert [index for index, _ in sent] == [0, 1, 0, 1]
    assert (sent[1][1].prompt_logprobs, sent[1][1].hits) == ([part], [])
    last = sent[3][1]
    assert (last.hits, last.logprobs) == ([(3, 8)], [entry])
    assert np.frombuffer(last.ids, np.int32).tolist() == [7]
    assert (sent[2][1].hits, sent[2][1].logprobs) == ([], [])


def test_large_scores_do_not_make_one_large_message() -> None:
    quarter = bytes(outbox.MAX_PROMPT_BYTES // 8)
    box = Outbox(1)
    parts = [m.PromptLogprobs(1, i, quarter, quarter) for i in range(9)]
    for part in parts:
        box.score(part)
    assert [len(message.prompt_logprobs) for _, message in box.take()] == [4, 4, 1]


def test_large_prompts_do_not_make_one_large_message() -> None:
    half = bytes(outbox.MAX_PROMPT_BYTES // 2)
    box = Outbox(1)
    for uid in range(5):
        box.open(opened(uid, half))
    messages = [message for _, message in box.take()]
    assert [[message.uid for message in sent.opens] for sent in messages] == [[0, 1], [2, 3], [4]]
