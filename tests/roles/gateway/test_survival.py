"""Whatever dies behind the door, each stream says what it says in a quiet run, once."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.roles import messages as m
from stretto.roles.gateway.stream import Stream, merge
from stretto.tests.roles.gateway.doors import CHOICES, STREAMED, WHOLE, Bench, word


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
