from __future__ import annotations

import pytest

from stretto.roles import messages as m
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.journal import Account
from stretto.roles.gateway.live import Live, failure
from stretto.roles.gateway.queue import Queue
from stretto.roles.gateway.stream import Inbox, Stream
from stretto.tests.roles.gateway.doors import STREAMED, Bench
from stretto.tests.roles.gateway.house import ids

PAIR = Job(params=m.SamplingParams(n=2), prompts=("a",), stream=True)
FAULT = m.Fault(500, "no")


class Lives(Bench):
    """What a `Door` has of it, without the door."""

    def __init__(self) -> None:
        super().__init__()
        self.empty: list[bool] = []
        queue = Queue(self.meter)
        self.live = Live(0, 2, self, self.meter, queue, lambda: self.now, self.empty.append)

    def admit(self, job: Job = PAIR, proven: bool = True) -> Stream:
        stream = Stream(8, job, Inbox(), 90.0)
        self.live.admit(stream, [1], [Account() for _ in job.positions], proven)
        return stream


@pytest.fixture
def lives() -> Lives:
    return Lives()


def test_a_stream_and_its_sequences_are_found_until_the_last_has_ended(lives: Lives) -> None:
    stream = lives.admit()
    assert (len(lives.live), lives.live.all(), sorted(lives.live.sequences)) == (1, [stream], [8, 9])
    for uid in (9, 8):
        assert lives.empty[-1] is False
        lives.live.finish(lives.live.sequences[uid], "stop")
    assert (len(lives.live), lives.live.sequences, stream.ended, lives.empty[-1]) == (0, {}, True, True)
    assert lives.meter.value("requests_finished_total") == 1


def test_a_failure_ends_the_stream_and_cancels_its_sequences(lives: Lives) -> None:
    stream = lives.admit()
    lives.live.fail(stream, FAULT)
    assert lives.sent_now() == [(1, m.Cancel(8)), (1, m.Cancel(9))]
    assert stream.take() == [failure(8, FAULT)]
    assert (stream.ended, lives.meter.value("requests_failed_total")) == (True, 1)


def test_who_has_not_shown_the_key_cancels_nothing(lives: Lives) -> None:
    lives.live.leave(lives.admit(proven=False))
    assert (lives.sent, len(lives.live)) == ([], 0)


def test_a_stream_is_left_once_and_without_a_word(lives: Lives) -> None:
    stream = lives.admit(STREAMED)
    for _ in range(2):
        lives.live.leave(stream)
    assert (lives.sent_now(), stream.take()) == ([(1, m.Cancel(8))], [])


def test_what_is_forgotten_lives_on_elsewhere(lives: Lives) -> None:
    stream = lives.admit(STREAMED)
    lives.live.deliver(lives.live.sequences[8], m.Event(8, 0, "a", ids(1)))
    lives.live.forget(stream)
    assert (stream.moved, stream.ended, stream.take(), lives.sent, len(lives.live)) == (
        True, False, [], [], 0,
    )  # fmt: skip
    assert lives.meter.value("requests_cancelled_total") == 0


def test_what_is_delivered_is_counted_and_timed(lives: Lives) -> None:
    stream = lives.admit(STREAMED)
    lives.live.deliver(lives.live.sequences[8], m.Event(8, 0, "a", ids(1, 2)))
    assert (stream.first, stream.tokens, stream.begun) == (100.0, 2, True)


def test_the_size_of_what_has_ended_is_counted(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, float]] = []
    monkeypatch.setattr(lives.meter, "observe", lambda name, value: seen.append((name, value)))
    lives.admit(STREAMED)
    end = m.Event(8, 2, "", b"", "stop", None, m.Usage(7, 2))
    lives.live.deliver(lives.live.sequences[8], end)
    assert seen[:2] == [("request_prompt_tokens", 7), ("request_generated_tokens", 2)]


def test_of_what_was_submitted_twice_the_second_copy_is_cancelled(lives: Lives) -> None:
    lives.admit(STREAMED)
    sequence = lives.live.sequences[8]
    sequence.again = True
    lives.live.finish(sequence, "length")
    assert lives.sent_now() == [(1, m.Cancel(8))]


def test_each_detokenizer_hears_of_its_own_sequences(lives: Lives) -> None:
    lives.live.tell(8, m.Detach(8, 0))
    lives.live.tell(9, m.Detach(9, 0))
    assert lives.told_now() == [(0, m.Detach(8, 0)), (1, m.Detach(9, 0))]
