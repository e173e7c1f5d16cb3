"""Beam searches as clients of the scheduler: each step of each beam is a small request of its own.

Such an inner request has a negative uid, the beam so far for its prompt, and asks for one token and its
alternatives. It is queued, admitted, retracted and replayed like any other; the prefix tree has its prompt
from the step before, so that one token is computed, and a page copied where beams part. When all beams of a
search have their answers, the next step's requests follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

import numpy as np
from msgspec.structs import replace

from stretto.roles import messages as m
from stretto.roles.scheduler.beams import Beam, BeamSearch
from stretto.roles.scheduler.outbox import Outbox


class Search:
    """A request with beams that has not ended."""

    def __init__(self, request: m.Request, beams: m.Beams, room: int, age: int) -> None:
        self.request, self.age = request, age
        self.choices = list(choices_of(request))
        """Those of its uids that somebody still waits for."""
        self.cached: int | None = None
        """Prompt tokens the prefix tree had at the first step; None before it."""
        self.fault: m.Fault | None = None
        self.beams = BeamSearch(beams, request.stop_ids, room, request.sampling.logprobs or 0)
        self.pending: dict[int, int] = {}
        """Index of the beam by the uid of the inner request that has not ended."""
        self.answers: dict[int, m.TokenLogprobs] = {}
        """By index of the beam."""

    def answered(self) -> bool:
        """Take the step that all answers are there for; whether it was the last."""
        if not self.beams.over:
            self.beams.advance([self.answers[index] for index in range(len(self.answers))])
        return self.beams.over

    def inner_request(self, uid: int, beam: Beam) -> m.Request:
        """What asks for the continuations of a beam."""
        first, logprobs = not len(beam), self.beams.fanout
        scored = self.request.sampling.prompt_logprobs if first else None
        return m.Request(
            uid,
            self.request.arrived,
            self.request.prompt_ids + beam.ids,
            0 if self.beams.over else 1,
            (),
            m.Sampling(logprobs=logprobs, prompt_logprobs=scored),
            self.request.output,
            priority=self.request.priority,
            cache_salt=self.request.cache_salt,
        )


class Searches:
    """All beam searches: `begin`, then hand in what the inner requests bring, then ask which are `ready`."""

    def __init__(self) -> None:
        self._uids = count(-1, -1)
        self._by_choice: dict[int, Search] = {}
        self._by_inner: dict[int, Search] = {}
        self._ready: dict[int, Search] = {}
        """By the uid of the request: those that have all answers, or failed."""

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._by_choice)

    def __iter__(self) -> Iterator[Search]:
        """Each once."""
        yield from {search.request.uid: search for search in self._by_choice.values()}.values()

    def of(self, uid: int) -> Search | None:
        """The search that this choice belongs to."""
        return self._by_choice.get(uid)

    @property
    def choices(self) -> Iterable[int]:
        """Uids that somebody waits for."""
        return self._by_choice.keys()

    def begin(self, search: Search) -> None:
        """Start a search; ask for its `step`."""
        self._by_choice.update(dict.fromkeys(search.choices, search))

    def join(self, search: Search, choices: Iterable[int]) -> None:
        """These choices of it are waited for, too."""
        search.choices = sorted({*search.choices, *choices})
        self._by_choice.update(dict.fromkeys(choices, search))

    def step(self, search: Search) -> list[m.Request]:
        """The inner requests of the next step."""
        search.answers.clear()
        requests = []
        for index, beam in enumerate(search.beams.running):
            uid = next(self._uids)
            search.pending[uid] = index
            self._by_inner[uid] = search
            requests.append(search.inner_request(uid, beam))
        return requests

    def answer(self, scores: Iterable[m.TokenLogprobs]) -> list[m.TokenLogprobs]:
        """Keep what belongs to inner requests; returns the others."""
        others = []
        for entry in scores:
            if entry.uid >= 0:
                others.append(entry)
            else:
                search = self._by_inner[entry.uid]
                search.answers[search.pending[entry.uid]] = entry
        return others

    def end(self, end: m.End) -> None:
        """An inner request has ended."""
        search = self._by_inner.pop(end.uid)
        del search.pending[end.uid]
        search.cached = end.cached_tokens
        search.fault = search.fault or end.fault
        if search.fault is not None or not search.pending:
            self._ready[search.request.uid] = search

    def ready(self) -> Iterator[Search]:
        """Searches that have what they waited for, each once; more may come while this runs."""
        while self._ready:
            yield self._ready.pop(next(iter(self._ready)))

    def outer(self, uid: int) -> int | None:
        """Who hears of the prompt of an inner request: the first choice, if anybody waits for it."""
        request = self._by_inner[uid].request
        return request.uid if request.uid in self._by_choice else None

    def leave(self, search: Search, choice: int) -> list[int]:
        """Nobody waits for this choice any more; returns the inner requests that are now of no use."""
        del self._by_choice[choice]
        search.choices.remove(choice)
        if search.choices:
            return []
        for inner in search.pending:
            del self._by_inner[inner]
        return list(search.pending)


def choices_of(request: m.Request) -> range:
    """The uids under which a request's results come."""
    return range(request.uid, request.uid + (1 if request.beams is None else request.beams.n))


def output_of(request: m.Request, choice: int) -> m.Output:
    """What a choice's reader is told: of the prompt the first alone hears, but for its text."""
    output = request.output
    if choice == request.uid:
        return output
    prompt = output.prompt_ids if output.echo else b""
    return replace(output, prompt_ids=prompt, return_prompt_ids=False, prompt_logprobs=None)


def report(search: Search, outbox: Outbox) -> int:
    """Tell the results of a search that is over, a token of each at a time; returns how many tokens."""
    first, results = search.request.uid, search.beams.results()
    told = [(uid, results[uid - first]) for uid in search.choices]
    for uid, _ in told:
        outbox.hit(uid, search.cached or 0)
    for index in range(max(len(beam) for _, beam in told)):
        going = [(uid, beam) for uid, beam in told if index < len(beam)]
        outbox.tokens(
            np.array([uid for uid, _ in going], np.int64),
            np.concatenate([np.frombuffer(beam.ids, np.int32)[index : index + 1] for _, beam in going]),
            np.full(len(going), index, np.int64),
            [replace(beam.tokens[index], uid=uid) for uid, beam in going],
        )
        for uid, beam in going:
            if index + 1 == len(beam):
                outbox.end(_end(search, uid, beam))
    for uid, beam in told:
        if not len(beam):
            outbox.end(_end(search, uid, beam))
    return sum(len(beam) for _, beam in told)


def _end(search: Search, uid: int, beam: Beam) -> m.End:
    silent = beam.stop_id in search.request.silent_stop_ids
    reason: m.FinishReason = "length" if beam.stop_id is None else "stop"
    return m.End(uid, reason, beam.stop_id, silent, search.cached or 0)
