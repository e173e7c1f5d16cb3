"""Every request ends exactly once, whatever dies, leaves or comes late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stretto.roles import messages as m
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.stream import Inbox, Stream, merge
from stretto.roles.metrics import Meter

PROMPT = Job(params=m.SamplingParams(), prompts=("Hi",))
STREAMED = Job(params=m.SamplingParams(), prompts=("Hi",), stream=True)
MANY = Job(params=m.SamplingParams(n=2), prompts=("a", [5]), stream=True)


class Wires:
    def __init__(self) -> None:
        self.sent: list[tuple[int, m.ToTokenizer]] = []
        self.told: list[tuple[int, m.ToDetokenizer]] = []
        self.full = False

    def offer(self, tokenizer: int, message: m.ToTokenizer) -> bool:
        if not self.full:
            self.sent.append((tokenizer, message))
        return not self.full

    def post(self, tokenizer: int, message: m.ToTokenizer) -> None:
        self.sent.append((tokenizer, message))

    def tell(self, detokenizer: int, message: m.ToDetokenizer) -> None:
        self.told.append((detokenizer, message))

    def cancels(self) -> list[tuple[int, int]]:
        return [(i, message.uid) for i, message in self.sent if isinstance(message, m.Cancel)]


class Bench:
    """A door with two tokenizers and two detokenizers, and a clock that stands still."""

    def __init__(self) -> None:
        self.wires = Wires()
        self.now = 100.0
        self.meter = Meter("gateway", memoryview(bytearray(8 * 128)).cast("d"))
        self.door = Door(3, 2, 2, self.wires, self.meter, lambda: self.now)

    def submit(self, job: Job = PROMPT) -> Stream:
        return self.door.submit(job, Inbox())

    def events(self, *events: m.Event) -> None:
        self.door.on_message(m.Events(list(events)))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def delta(stream: Stream, index: int = 0, text: str = "a") -> m.Event:
    return m.Event(stream.uid, index, text, b"\1\0\0\0", offset=index)


def end(stream: Stream, reason: m.FinishReason = "stop") -> m.Event:
    return m.Event(stream.uid, 0, "", finish_reason=reason, usage=m.Usage(1, 1))


def fault_of(stream: Stream) -> m.Fault:
    event = merge(stream.take())
    assert event.finish_reason == "error"
    assert event.fault is not None
    return event.fault


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body())


def test_what_follows_in_one_body_waits_for_room(bench: Bench) -> None:
    bench.submit()
    bench.wires.full = True
    second = bench.door.submit(PROMPT, Inbox(), follows=True)
    assert bench.door.streams[-1] is second
    assert isinstance(bench.wires.sent[-1][1], m.Submit)


def test_a_submit_says_all_and_tokenizers_take_turns(bench: Bench) -> None:
    job = Job(
        params=m.SamplingParams(seed=1),
        messages=[{"role": "user", "content": "Hi"}],
        template_kwargs={"a": 1},
        add_generation_prompt=False,
        stream=True,
        return_token_ids=True,
    )
    streams = [bench.submit(job) for _ in range(3)]
    assert [i for i, _ in bench.wires.sent] == [0, 1, 0]
    assert bench.wires.sent[0][1] == m.Submit(
        uid=streams[0].uid,
        gateway=3,
        arrived=100.0,
        params=m.SamplingParams(seed=1),
        messages=[{"role": "user", "content": "Hi"}],
        template_kwargs={"a": 1},
        add_generation_prompt=False,
        stream=True,
        echo_prompt_ids=True,
    )


@pytest.mark.parametrize(("timeout", "deadline"), [(None, 105.0), (2.0, 102.0), (60.0, 105.0)])
def test_no_request_outlives_what_the_server_allows(
    bench: Bench, timeout: float | None, deadline: float
) -> None:
    door = Door(3, 2, 2, bench.wires, bench.meter, lambda: bench.now, max_seconds=5.0)
    door.submit(replace(PROMPT, timeout=timeout), Inbox())
    ((_, message),) = bench.wires.sent
    assert isinstance(message, m.Submit)
    assert message.deadline == deadline


def test_events_reach_their_stream_in_order(bench: Bench) -> None:
    a, b = bench.submit(STREAMED), bench.submit(STREAMED)
    bench.events(delta(a, 0, "x"), delta(b, 0, "y"))
    bench.events(delta(a, 1, "z"), end(a))
    assert [event.text for event in a.take()] == ["x", "z", ""]
    assert [event.text for event in b.take()] == ["y"]
    assert (a.ended, b.ended, bench.door.live) == (True, False, 1)


def test_a_rejection_ends_the_request(bench: Bench) -> None:
    stream = bench.submit()
    fault = m.Fault(400, "too long")
    bench.door.on_message(m.Rejected(stream.uid, fault))
    assert fault_of(stream) == fault
    assert bench.door.live == 0


def test_what_comes_after_the_end_is_dropped(bench: Bench) -> None:
    stream = bench.submit()
    bench.events(end(stream))
    stream.take()
    bench.events(delta(stream), end(stream))
    bench.door.on_message(m.Rejected(stream.uid, m.Fault(400, "late")))
    bench.door.peer_lost("scheduler", 0)
    assert stream.take() == []
    assert bench.wires.cancels() == []


def test_leaving_cancels_where_the_request_was_submitted(bench: Bench) -> None:
    bench.submit()
    stream = bench.submit()
    bench.door.leave(stream)
    assert bench.wires.cancels() == [(1, stream.uid)]
    assert bench.door.live == 1
    bench.events(end(stream, "abort"))
    assert stream.take() == []


def test_leaving_after_the_end_says_nothing(bench: Bench) -> None:
    stream = bench.submit()
    bench.events(end(stream))
    bench.door.leave(stream)
    bench.door.cancel(stream)
    assert bench.wires.cancels() == []


def test_cancelling_waits_for_the_terminal_event(bench: Bench) -> None:
    stream = bench.submit()
    bench.door.cancel(stream)
    assert (bench.wires.cancels(), bench.door.live) == ([(0, stream.uid)], 1)
    bench.events(end(stream, "abort"))
    assert merge(stream.take()).finish_reason == "abort"


def test_a_full_tokenizer_means_429_and_no_request(bench: Bench) -> None:
    bench.wires.full = True
    with pytest.raises(Refused) as caught:
        bench.submit()
    assert caught.value.fault.status == 429
    assert bench.door.live == 0


def of_many(bench: Bench, **fields: Any) -> Stream:
    params = m.SamplingParams(n=2)
    return bench.submit(Job(**{"params": params, "prompts": ("a", [5]), "stream": True, **fields}))


def say(stream: Stream, position: int, reason: m.FinishReason | None = None) -> m.Event:
    return m.Event(stream.uid + position, 0, "x", b"\1\0\0\0", reason, usage=m.Usage(1, 1))


def test_a_batch_is_a_submit_for_each_prompt_and_a_uid_for_each_choice(bench: Bench) -> None:
    stream = of_many(bench, priority=-1, timeout=2.5, echo=True)
    sent = [(i, message) for i, message in bench.wires.sent if isinstance(message, m.Submit)]
    assert [(i, message.uid, message.prompt) for i, message in sent] == [
        (0, stream.uid, "a"),
        (1, stream.uid + 2, [5]),
    ]
    assert {(message.priority, message.deadline, message.echo) for _, message in sent} == {(-1, 102.5, True)}
    assert bench.submit().uid == stream.uid + 4


def test_a_request_ends_with_its_last_sequence(bench: Bench) -> None:
    stream = of_many(bench)
    for position in (3, 0, 1):
        bench.events(say(stream, position, "stop"), say(stream, position))
        assert not stream.ended
    bench.events(say(stream, 2), say(stream, 2, "length"))
    assert (stream.ended, bench.door.live, len(stream.take())) == (True, 0, 5)


def test_one_failing_sequence_ends_the_request_and_cancels_the_others(bench: Bench) -> None:
    stream = of_many(bench)
    bench.events(say(stream, 0, "stop"))
    bench.door.on_message(m.Rejected(stream.uid + 2, m.Fault(400, "no")))
    assert (stream.ended, stream.take()[-1].fault) == (True, m.Fault(400, "no"))
    assert bench.wires.cancels() == [(0, stream.uid + 1), (1, stream.uid + 3)]
    assert bench.door.live == 0


def test_cancelling_and_leaving_name_every_living_sequence(bench: Bench) -> None:
    stream = of_many(bench)
    bench.events(say(stream, 1, "stop"))
    left = [(0, stream.uid), (1, stream.uid + 2), (1, stream.uid + 3)]
    bench.door.cancel(stream)
    assert bench.wires.cancels() == left
    bench.door.leave(stream)
    assert bench.wires.cancels() == left + left


def test_of_beams_only_the_best_are_waited_for(bench: Bench) -> None:
    params = m.SamplingParams(n=1, best_of=4, use_beam_search=True)
    stream = of_many(bench, params=params)
    bench.events(say(stream, 0, "stop"), say(stream, 4, "stop"))
    assert (stream.ended, bench.submit().uid) == (True, stream.uid + 8)


def test_requests_are_found_by_the_id_of_their_answers(bench: Bench) -> None:
    mine = [of_many(bench, request_id="mine"), of_many(bench, request_id="mine")]
    other = bench.submit()
    assert bench.door.named("mine") == mine
    assert bench.door.named(f"cmpl-{other.uid:016x}") == [other]
    assert bench.door.named(f"cmpl-{mine[0].uid:016x}") == bench.door.named("") == []


def test_an_opened_message_comes_first_in_each_choice(bench: Bench) -> None:
    stream = of_many(bench, prompts=(), messages=[], lead="We")
    bench.events(say(stream, 1), say(stream, 0), replace(say(stream, 1), index=1, offset=1))
    assert [event.prompt_text for event in stream.take()] == ["We", "We", None]


def test_a_dead_executor_fails_nothing(bench: Bench) -> None:
    stream = bench.submit()
    bench.door.peer_lost("executor", 0)
    assert not stream.ended


def test_draining_waits_for_the_last_request(bench: Bench) -> None:
    async def body() -> None:
        stream = bench.submit()
        bench.door.stop_intake()
        with pytest.raises(Refused) as caught:
            bench.submit()
        assert caught.value.fault.status == 503
        asyncio.get_running_loop().call_soon(bench.events, end(stream))
        await bench.door.drained(60)
        assert merge(stream.take()).finish_reason == "stop"

    run(body)


def test_what_outlives_the_grace_fails(bench: Bench) -> None:
    async def body() -> None:
        stream = bench.submit()
        await bench.door.drained(0)
        assert fault_of(stream).code == "shutting_down"
        assert bench.wires.cancels() == [(0, stream.uid)]

    run(body)


def test_the_meter_counts_requests_by_their_end(bench: Bench) -> None:
    reasons: list[m.FinishReason] = ["stop", "length", "abort"]
    for reason in reasons:
        bench.events(end(bench.submit(), reason))
    bench.door.leave(bench.submit())
    bench.door.on_message(m.Rejected(bench.submit().uid, m.Fault(400, "no")))
    bench.submit()
    names = ["requests_total", "requests_finished_total", "requests_failed_total"]
    names += ["requests_cut_total", "requests_cancelled_total", "requests_live"]
    assert [bench.meter.value(name) for name in names] == [6, 2, 1, 1, 2, 1]


def test_the_meter_times_streams(bench: Bench) -> None:
    timed: list[tuple[str, float]] = []
    bench.meter.observe = lambda name, value: timed.append((name, value))  # type: ignore[method-assign]
    stream, whole = bench.submit(STREAMED), bench.submit()
    for now, event in [(100.5, delta(stream)), (100.75, delta(stream, 1)), (101.0, end(stream))]:
        bench.now = now
        bench.events(event)
    bench.events(m.Event(whole.uid, 0, "a", b"\1\0\0\0", "length"))
    assert [(name, value) for name, value in timed if name.endswith("_seconds")] == [
        ("time_to_first_token_seconds", 0.5),
        ("inter_token_latency_seconds", 0.25),
        ("request_latency_seconds", 1.0),
        ("request_latency_seconds", 1.0),
    ]


ACTIONS = ["submit", "cancel", "leave", "delta", "end", "reject", "tokenizer", "detokenizer", "scheduler"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5)), max_size=40))
def test_whatever_happens_each_request_ends_at_most_once_and_at_last(script: list[tuple[str, int]]) -> None:
    bench = Bench()
    streams, left = [bench.submit(STREAMED)], set()
    for action, i in script:
        stream = streams[i % len(streams)]
        match action:
            case "submit":
                streams.append(bench.submit((PROMPT, STREAMED, MANY)[i % 3]))
            case "cancel":
                bench.door.cancel(stream)
            case "leave":
                left |= set() if stream.ended else {stream.uid}
                bench.door.leave(stream)
            case "delta":
                bench.events(delta(stream, stream.tokens))
            case "end":
                bench.events(say(stream, i % 4, "stop"))
            case "reject":
                bench.door.on_message(m.Rejected(stream.uid, m.Fault(400, "no")))
            case role:
                bench.door.peer_lost(role, i % 2)
    for stream in bench.door.streams:
        bench.events(*(say(stream, uid - stream.uid, "stop") for uid in list(stream.sequences)))
    assert bench.door.live == 0
    for stream in streams:
        taken = stream.take()
        assert stream.ended
        endings = [event.uid for event in taken if event.finish_reason is not None]
        assert len(set(endings)) == len(endings)
        if stream.uid not in left:
            assert taken[-1].fault is not None or len(endings) == len(stream.job.positions)
    ended = ["requests_finished_total", "requests_failed_total", "requests_cancelled_total"]
    assert sum(bench.meter.value(name) for name in ended) == len(streams)
