"""After a death each request is submitted again where it may be lost, and nowhere else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stretto.roles import messages as m
from stretto.roles.gateway.claim import Claim, retained
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.stream import Inbox
from stretto.tests.roles.gateway.doors import CHOICES, STREAMED, Bench, word
from stretto.tests.roles.gateway.house import ids


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_dead_scheduler_gets_everything_again_with_what_is_known(bench: Bench) -> None:
    _, begun = bench.submit(STREAMED), bench.submit(STREAMED)
    (_, first), (_, second) = bench.sent_now()
    bench.events(word(begun.uid, 0, 2))
    bench.door.peer_lost("scheduler", 0)
    assert isinstance(second, m.Submit)
    assert bench.sent_now() == [(0, first), (1, replace(second, generated={begun.uid: ids(0, 1)}))]


def test_a_dead_tokenizer_gets_again_what_had_no_event(bench: Bench) -> None:
    held, elsewhere, begun = (bench.submit(STREAMED) for _ in range(3))
    sent = bench.sent_now()
    bench.events(word(begun.uid, 0))
    bench.door.peer_lost("tokenizer", 0)
    assert bench.sent_now() == sent[:1]
    assert not held.ended
    assert not elsewhere.ended


def test_what_was_submitted_again_may_die_with_its_tokenizer(bench: Bench) -> None:
    stream = bench.submit(STREAMED)
    bench.events(word(stream.uid, 0))
    bench.door.peer_lost("scheduler", 0)
    again = bench.sent_now()[-1:]
    bench.door.peer_lost("tokenizer", 0)
    assert bench.sent_now() == again


def test_what_a_dead_detokenizer_had_is_submitted_again(bench: Bench) -> None:
    streams = [bench.submit(STREAMED) for _ in range(4)]
    sent = bench.sent_now()
    bench.door.peer_lost("detokenizer", 1)
    assert bench.sent_now() == [one for one, stream in zip(sent, streams, strict=True) if stream.uid % 2]


def test_a_dead_executor_is_not_the_doors_business(bench: Bench) -> None:
    bench.submit(STREAMED)
    bench.sent_now()
    bench.door.peer_lost("executor", 0, 0)
    assert bench.sent_now() == []


@pytest.mark.parametrize("params", [m.SamplingParams(logprobs=0), m.SamplingParams(prompt_logprobs=1)])
def test_what_reports_log_probabilities_starts_from_its_first_token(
    bench: Bench, params: m.SamplingParams
) -> None:
    stream = bench.submit(replace(STREAMED, params=params))
    sent = bench.sent_now()
    bench.events(word(stream.uid, 0, 2))
    bench.door.peer_lost("scheduler", 0)
    assert bench.sent_now() == sent


def test_choices_that_ended_stay_ended(bench: Bench) -> None:
    stream = bench.submit(replace(CHOICES, prompts=("a",)))
    sent = bench.sent_now()
    bench.events(word(stream.uid, 0, 2, end=True))
    bench.door.peer_lost("scheduler", 0)
    assert bench.sent_now() == [*sent, (0, m.Cancel(stream.uid))]


def test_the_second_copy_of_a_sequence_is_cancelled_when_it_ends(bench: Bench) -> None:
    stream = bench.submit(STREAMED)
    bench.door.peer_lost("scheduler", 0)
    bench.sent_now()
    bench.events(word(stream.uid, 0, 2, end=True))
    assert bench.sent_now() == [(0, m.Cancel(stream.uid))]


def test_a_seed_is_drawn_once(bench: Bench) -> None:
    bench.submit(STREAMED)
    bench.door.peer_lost("scheduler", 0)
    seeds = {message.params.seed for _, message in bench.sent if isinstance(message, m.Submit)}
    assert len(seeds) == 1
    assert None not in seeds


def test_a_cancel_that_is_not_confirmed_is_repeated(bench: Bench) -> None:
    stream, other = bench.submit(STREAMED), bench.submit(STREAMED)
    bench.door.leave(stream)
    bench.door.cancel(other)
    bench.events(m.Event(other.uid, 0, "", finish_reason="abort"))
    bench.sent_now()
    bench.door.peer_lost("tokenizer", 0)
    assert bench.sent_now() == [(0, m.Cancel(stream.uid))]
    bench.events(m.Event(stream.uid, 0, "", finish_reason="abort"))
    bench.door.peer_lost("tokenizer", 0)
    assert bench.sent_now() == []


def test_what_is_nobody_s_here_is_ended_after_two_deaths_and_given_to_nobody(bench: Bench) -> None:
    claim = Claim(5 << 56, 1, 2, 90.0)
    bench.door.peer_lost("detokenizer", 0, claim.uid)
    assert bench.sent_now() == []
    bench.door.peer_lost("detokenizer", 0, claim.uid)
    assert bench.sent_now() == [(claim.uid % 2, m.Cancel(claim.uid))]
    with pytest.raises(Refused) as refused:
        bench.door.resume(STREAMED, claim, {0: 0}, Inbox())
    assert refused.value.fault.code == "poison_request"


def test_a_detached_stream_that_kills_twice_is_poison(bench: Bench) -> None:
    stream = bench.submit(retained(STREAMED, 60.0))
    bench.door.detach(stream)
    for _ in range(2):
        bench.sent_now()
        bench.door.peer_lost("detokenizer", stream.uid % 2, stream.uid)
    assert (stream.ended, bench.sent_now()[0]) == (True, (0, m.Cancel(stream.uid)))


def test_a_request_at_work_at_two_deaths_is_poison(bench: Bench) -> None:
    guilty, innocent = bench.submit(CHOICES), bench.submit(STREAMED)
    bench.door.peer_lost("tokenizer", 0, guilty.uid + 2)
    assert not guilty.ended
    bench.door.peer_lost("scheduler", 0, guilty.uid)
    assert (guilty.ended, innocent.ended) == (True, False)
    fault = guilty.take()[-1].fault
    assert fault is not None
    assert (fault.status, fault.code) == (500, "poison_request")
    cancelled = {message.uid for _, message in bench.sent if isinstance(message, m.Cancel)}
    assert cancelled == {guilty.uid + i for i in range(4)}
