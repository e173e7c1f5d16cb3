"""Whatever dies behind the door, each stream says what it says in a quiet run, once."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stretto.roles import messages as m
from stretto.roles.gateway.claim import Claim, retained
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.stream import Inbox, Stream, merge
from stretto.roles.metrics import Meter
from stretto.tests.roles.gateway.house import ids

STREAMED = Job(params=m.SamplingParams(), prompts=("Hi",), stream=True)
CHOICES = Job(params=m.SamplingParams(n=2, logprobs=0), prompts=("a", [5]), stream=True)
WHOLE = Job(params=m.SamplingParams(n=2), prompts=("a",))


class Bench:
    """Doors to two tokenizers and two detokenizers that only listen."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[tuple[int, m.ToTokenizer]] = []
        self.told: list[tuple[int, m.ToDetokenizer]] = []
        self.meter = Meter("gateway", memoryview(bytearray(8 * 128)).cast("d"))
        self.door = self.another(0)

    def another(self, index: int) -> Door:
        return Door(index, 2, 2, self, self.meter, lambda: self.now)

    def offer(self, tokenizer: int, message: m.ToTokenizer) -> bool:
        self.sent.append((tokenizer, message))
        return True

    def post(self, tokenizer: int, message: m.ToTokenizer) -> None:
        self.sent.append((tokenizer, message))

    def tell(self, detokenizer: int, message: m.ToDetokenizer) -> None:
        self.told.append((detokenizer, message))

    def submit(self, job: Job) -> Stream:
        return self.door.submit(job, Inbox())

    def events(self, *events: m.Event) -> None:
        self.door.on_message(m.Events(list(events)))

    def sent_now(self) -> list[tuple[int, m.ToTokenizer]]:
        sent, self.sent = self.sent, []
        return sent

    def told_now(self) -> list[tuple[int, m.ToDetokenizer]]:
        told, self.told = self.told, []
        return told


@pytest.fixture
def bench() -> Bench:
    return Bench()


def word(uid: int, start: int, stop: int | None = None, end: bool = False) -> m.Event:
    """Tokens [start, stop) of a sequence that says its uid's last digits; each is one character."""
    stop = start + 1 if stop is None else stop
    tokens = range(start, stop)
    return m.Event(
        uid,
        start,
        "".join(chr(97 + (uid + i) % 26) for i in tokens),
        ids(*tokens),
        "stop" if end else None,
        usage=m.Usage(1, stop) if end else None,
        logprobs=[m.TokenInfo(i, "", b"", float(-i), 1, []) for i in tokens],
        offset=start,
    )


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


class World(Bench):
    """A back end that dies, forgets and cuts its events as it likes, but speaks the protocol."""

    LENGTH = 6

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[int, int] = {}
        """Tokens told by the detokenizer, of each sequence that lives."""
        self.mail: deque[m.Event] = deque()

    def work(self) -> None:
        """Take in what was sent."""
        for _, message in self.sent_now():
            if isinstance(message, m.Submit):
                for uid in range(message.uid, message.uid + message.params.width):
                    self.at.setdefault(uid, 0)
            elif isinstance(message, m.Cancel) and self.at.pop(message.uid, None) is not None:
                self.mail.append(m.Event(message.uid, 0, "", finish_reason="abort"))

    def step(self, i: int, count: int, whole: set[int]) -> None:
        """Some sequence goes on."""
        if not self.at:
            return
        uid = sorted(self.at)[i % len(self.at)]
        start = self.at[uid]
        stop = self.LENGTH if uid in whole else min(self.LENGTH, start + count)
        self.at[uid] = stop
        self.mail.append(word(uid, start, stop, end=stop == self.LENGTH))
        if stop == self.LENGTH:
            del self.at[uid]

    def die(self, role: str, i: int) -> None:
        """A detokenizer tells everything again; a scheduler may have lost some requests, or their ends."""
        match role:
            case "detokenizer":
                for uid in self.at:
                    self.at[uid] = 0
                for event in list(self.mail)[i:]:
                    self.mail.remove(event)
                    if event.finish_reason is None and event.uid in self.at:
                        self.at[event.uid] = 0
            case "scheduler":
                for uid in sorted(self.at)[i:]:
                    del self.at[uid]
            case "tokenizer":
                self.sent.clear()
        self.door.peer_lost(role, 0)
        self.door.peer_lost(role, 1)

    def deliver(self, count: int) -> None:
        for _ in range(min(count, len(self.mail))):
            self.events(self.mail.popleft())


JOBS = [STREAMED, CHOICES, WHOLE]
moves = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("work"), st.just(0), st.just(0)),
    st.tuples(st.just("step"), st.integers(0, 9), st.integers(1, 3)),
    st.tuples(st.just("deliver"), st.integers(1, 4), st.just(0)),
    st.tuples(st.sampled_from(["scheduler", "detokenizer", "tokenizer"]), st.integers(0, 3), st.just(0)),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(moves, max_size=40))
def test_every_stream_says_what_a_quiet_run_says(script: list[tuple[str, int, int]]) -> None:
    world = World()
    streams: list[Stream] = []
    said: dict[int, list[m.Event]] = {}

    def listen() -> None:
        for stream in streams:
            for event in stream.take():
                said.setdefault(event.uid, []).append(event)

    for move, i, count in [*script, *[("work", 0, 0), ("step", 0, 3), ("deliver", 99, 0)] * 60]:
        whole = {s.uid + i for s in streams if not s.job.stream for i in s.job.positions}
        match move:
            case "submit":
                streams.append(world.submit(JOBS[i]))
            case "work":
                world.work()
            case "step":
                world.step(i, count, whole)
            case "deliver":
                world.deliver(i)
            case role:
                world.die(role, i)
        listen()
    assert world.door.live == 0
    assert all(stream.ended for stream in streams)
    uids = [stream.uid + i for stream in streams for i in stream.job.positions]
    assert {uid: merge(said[uid]) for uid in uids} == {
        uid: word(uid, 0, World.LENGTH, end=True) for uid in uids
    }
    assert set(said) == set(uids)
    world.work()
    assert world.at == {}
