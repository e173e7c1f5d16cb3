"""A stream waits for the client that lost its connection, and is given to nobody else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stretto.roles import messages as m
from stretto.roles.gateway.claim import Claim, retained
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.stream import Inbox, Stream, merge
from stretto.tests.roles.gateway.doors import CHOICES, STREAMED, Bench, word


@pytest.fixture
def bench() -> Bench:
    return Bench()


def resumable(bench: Bench, job: Job = STREAMED) -> Stream:
    stream = bench.submit(retained(job, 60.0))
    bench.sent_now()
    return stream


def test_a_lost_client_s_stream_goes_on_unheard(bench: Bench) -> None:
    stream = resumable(bench)
    bench.events(word(stream.uid, 0))
    bench.door.detach(stream)
    assert bench.told_now() == [(stream.uid % 2, m.Detach(stream.uid, 0))]
    bench.events(word(stream.uid, 1))  # the detokenizer did not know yet
    assert bench.told_now() == [(stream.uid % 2, m.Detach(stream.uid, 0))]
    assert (stream.take(), stream.tokens) == ([], 1)


def test_a_stream_that_nobody_comes_back_for_is_cancelled(bench: Bench) -> None:
    stream = resumable(bench)
    bench.door.detach(stream)
    bench.now += 59
    bench.door.tick()
    assert bench.sent_now() == []
    bench.now += 1
    bench.door.tick()
    assert (bench.sent_now(), bench.door.live) == ([(0, m.Cancel(stream.uid))], 0)


def test_a_server_that_ends_waits_for_no_lost_client(bench: Bench) -> None:
    lost, later = resumable(bench), resumable(bench)
    bench.door.detach(lost)
    bench.door.stop_intake()
    assert bench.door.streams == [later]
    bench.door.detach(later)
    assert bench.door.live == 0
    assert [message for _, message in bench.sent_now()] == [m.Cancel(lost.uid), m.Cancel(later.uid)]


def test_a_gateway_that_is_replaced_keeps_no_lost_client_s_stream(bench: Bench) -> None:
    lost, later = resumable(bench), resumable(bench)
    bench.door.detach(lost)
    bench.door.hand_over()
    bench.door.detach(later)
    assert bench.door.live == 0
    assert bench.told_now() == [(stream.uid % 2, m.Detach(stream.uid, 0)) for stream in (lost, later)]
    assert bench.sent_now() == []


def test_an_unheard_stream_is_submitted_again_too_and_a_new_detokenizer_told(bench: Bench) -> None:
    stream = resumable(bench)
    bench.door.detach(stream)
    bench.told_now()
    bench.door.peer_lost("detokenizer", stream.uid % 2)
    assert len(bench.sent_now()) == 1
    assert bench.told_now() == [(stream.uid % 2, m.Detach(stream.uid, 0))]


def test_a_client_that_is_back_gets_the_rest_at_any_gateway(bench: Bench) -> None:
    stream = resumable(bench)
    claim = Claim.parse(str(Claim.of(stream)))
    bench.events(word(stream.uid, 0, 5))
    for door in (bench.another(1), bench.door):
        again = door.resume(STREAMED, claim, {0: 3}, Inbox())
        attach = m.Attach(stream.uid, 0 if door is bench.door else 1, 3, stream.job.key)
        assert bench.told_now() == [(stream.uid % 2, attach)]
        door.on_message(m.Events([word(stream.uid, 5)]))  # was on its way to the lost connection
        assert again.take() == []
        door.on_message(m.Events([word(stream.uid, 3, 6), word(stream.uid, 6, 7, end=True)]))
        assert merge(again.take()) == word(stream.uid, 3, 7, end=True)
        assert again.ended
        assert door.live == 0
    assert (stream.moved, stream.take()[:1]) == (True, [])


def test_a_resumed_stream_is_the_one_it_was(bench: Bench) -> None:
    stream = resumable(bench)
    bench.door.detach(stream)
    bench.door.resume(STREAMED, Claim.of(stream), {0: 0}, Inbox())
    bench.door.peer_lost("scheduler", 0)
    ((_, message),) = bench.sent_now()
    assert isinstance(message, m.Submit)
    assert (message.uid, message.params, message.key) == (stream.uid, stream.job.params, stream.job.key)


def test_the_gateway_that_a_client_left_forgets_without_a_word(bench: Bench) -> None:
    stream = resumable(bench)
    bench.door.on_message(m.Detached(stream.uid, known=True))
    assert (stream.moved, stream.take(), bench.door.live, bench.sent_now()) == (True, [], 0, [])
    bench.door.leave(stream)
    assert bench.sent_now() == []


def test_a_stream_that_nobody_knows_fails_and_nobody_s_stream_is_cancelled(bench: Bench) -> None:
    claim = Claim(5 << 56, 1, 2, 90.0)
    again = bench.door.resume(STREAMED, claim, {0: 0}, Inbox())
    bench.door.cancel(again)
    bench.door.on_message(m.Detached(claim.uid, known=False))
    fault = again.take()[-1].fault
    assert fault is not None
    assert (fault.status, fault.code, bench.sent_now()) == (404, "stream_not_found", [])


def test_a_stream_that_is_here_and_says_nothing_yet_may_be_cancelled(bench: Bench) -> None:
    claim = Claim(5 << 56, 1, 2, 90.0)
    again = bench.door.resume(STREAMED, claim, {0: 0}, Inbox())
    bench.door.on_message(m.Attached(claim.uid))
    bench.door.cancel(again)
    assert bench.sent_now() == [(0, m.Cancel(claim.uid))]
    bench.door.peer_lost("scheduler", 0)
    assert isinstance(bench.sent_now()[0][1], m.Submit)


def test_choices_that_have_ended_wait_for_those_that_live(bench: Bench) -> None:
    stream = resumable(bench, replace(CHOICES, prompts=("a",)))
    first, second = stream.uid, stream.uid + 1
    bench.events(word(first, 0, 2, end=True))
    assert bench.told_now() == [(first % 2, m.Keep(first, 0))]
    bench.events(word(second, 0, 2, end=True))
    assert bench.told_now() == [(uid % 2, m.Detach(uid, 0)) for uid in (first, second)]


def test_with_its_client_gone_no_choice_is_waited_for(bench: Bench) -> None:
    stream = resumable(bench, replace(CHOICES, prompts=("a",)))
    bench.events(word(stream.uid, 0, 2, end=True))
    bench.told_now()
    bench.door.detach(stream)
    assert {message for _, message in bench.told_now()} == {m.Detach(stream.uid + i, 0) for i in (0, 1)}


def test_a_stream_of_one_choice_says_nothing_more(bench: Bench) -> None:
    stream = resumable(bench)
    bench.events(word(stream.uid, 0, 2, end=True))
    assert bench.told_now() == []


def test_a_cancel_waits_until_the_key_is_found_right(bench: Bench) -> None:
    claim = Claim(5 << 56, 1, 2, 90.0)
    again = bench.door.resume(STREAMED, claim, {0: 0}, Inbox())
    bench.door.cancel(again)
    bench.events(word(claim.uid, 0))
    assert bench.sent_now() == [(0, m.Cancel(claim.uid))]


@pytest.mark.parametrize(("away", "key"), [(0, 1), (3, 0), (1000, 0)])
def test_without_its_key_no_stream_is_found(bench: Bench, away: int, key: int) -> None:
    stream = resumable(bench, CHOICES)
    forged = replace(Claim.of(stream), uid=stream.uid + away, key=key or stream.job.key)
    with pytest.raises(Refused) as refused:
        bench.door.resume(CHOICES, forged, {0: 0}, Inbox())
    assert refused.value.fault.code == "stream_not_found"
    assert not stream.moved


@pytest.mark.parametrize("word", ["", "x", "eA==", str(Claim(1, 0, 1, 1.0)), str(Claim(-1, 1, 1, 1.0))])
def test_a_word_that_is_no_claim_finds_nothing(word: str) -> None:
    with pytest.raises(Refused):
        Claim.parse(word)


def test_a_new_detokenizer_is_told_where_a_resumed_stream_is(bench: Bench) -> None:
    stream = resumable(bench)
    bench.events(word(stream.uid, 0, 2))
    bench.door.resume(STREAMED, Claim.of(stream), {0: 1}, Inbox())
    bench.events(word(stream.uid, 1, 3))
    bench.told_now()
    bench.door.peer_lost("detokenizer", stream.uid % 2)
    assert bench.told_now() == [(stream.uid % 2, m.Attach(stream.uid, 0, 3, stream.job.key))]
