"""A pretended executor whose tokens depend on every KV cell it reads, and a world to run the core in.

A KV cell holds a token and a digest of everything before it, as real keys and values do. The next token is
made from the last digest, so a wrong page, a page reused too early or a stale copy changes the output; and
each row verifies the whole chain of cells it reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.beams import Beam, BeamSearch
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.core import Core
from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.recall import requests_of
from stretto.roles.scheduler.searches import choices_of
from stretto.tests.roles.scheduler.lower import Lower, Page

MASK = (1 << 61) - 1
CLOCK = m.Clock(0.0, 0.0, 0.0, 0.0)


def ints(data: bytes) -> list[int]:
    """An int32 buffer of a message, as a list."""
    return np.frombuffer(data, np.int32).tolist()


def floats(data: bytes) -> list[float]:
    """A float32 buffer of a message, as a list."""
    return np.frombuffer(data, np.float32).tolist()


def rows(data: bytes, width: int) -> list[list[int]]:
    """An int32[n, width] buffer of a message, as lists."""
    return np.frombuffer(data, np.int32).reshape(-1, width).tolist()


def digest(before: int, token: int) -> int:
    """What a KV cell holds besides its token."""
    return ((before ^ (token + 0x9E3779B9)) * 0x2545F4914F6CDD1D + 0x632BE5AB) & MASK


def next_token(digest_: int, seed: int, vocabulary: int) -> int:
    """The pretended model and sampler."""
    return (digest(digest_, seed) >> 23) % vocabulary


def logprob(digest_: int, token: int) -> float:
    """What the pretended model thinks of a token; sums of dozens are exact in float32. Not normalised."""
    return -((digest(digest_, token + 77) >> 23) % (1 << 16)) / 1024


def ranking(digest_: int, vocabulary: int) -> list[tuple[float, int]]:
    """(log-probability, token), best first, ties by token."""
    return sorted(
        ((logprob(digest_, token), token) for token in range(vocabulary)), key=lambda e: (-e[0], e[1])
    )


class Score(NamedTuple):
    """Of one token: its log-probability and rank, ids and log-probabilities of the likeliest."""

    logprob: float
    rank: int
    top_ids: list[int]
    top: list[float]


def score(digest_: int, token: int, width: int, vocabulary: int) -> Score:
    """The log-probability of `token` where `digest_` was before it."""
    own, best = logprob(digest_, token), ranking(digest_, vocabulary)
    rank = 1 + sum(value > own for value, _ in best)
    return Score(own, rank, [token for _, token in best[:width]], [value for value, _ in best[:width]])


def digests(tokens: list[int]) -> list[int]:
    """The digest before each token, and after the last."""
    states = [0]
    for token in tokens:
        states.append(digest(states[-1], token))
    return states


def beam_oracle(request: m.Request, limits: Limits, vocabulary: int) -> list[Beam]:
    """The beams of a request that is alone in the world, found without a scheduler."""
    assert request.beams is not None
    prompt = ints(request.prompt_ids)
    room = limits.end_of(len(prompt), request.max_tokens) - len(prompt)
    search = BeamSearch(request.beams, request.stop_ids, room, request.sampling.logprobs or 0)
    while not search.over:
        states = [digests(prompt + ints(beam.ids))[-1] for beam in search.running]
        search.advance([answer(state, search.fanout, vocabulary) for state in states])
    return search.results()


def answer(digest_: int, width: int, vocabulary: int) -> m.TokenLogprobs:
    """The likeliest tokens where `digest_` was before them."""
    best = ranking(digest_, vocabulary)[:width]
    return m.TokenLogprobs(0, 0.0, 1, _int32([token for _, token in best]), _float32([v for v, _ in best]))


def oracle(request: m.Request, limits: Limits, vocabulary: int) -> tuple[list[int], str]:
    """The tokens and finish reason of a request that is alone in the world."""
    tokens = ints(request.prompt_ids)
    prompt, end, state = len(tokens), limits.end_of(len(tokens), request.max_tokens), 0
    for token in tokens:
        state = digest(state, token)
    while len(tokens) < end:
        token = next_token(state, request.sampling.seed, vocabulary)
        tokens.append(token)
        state = digest(state, token)
        if token in request.stop_ids:
            return tokens[prompt:], "stop"
    return tokens[prompt:], "length"


@dataclass
class Slot:
    """The executor's own slot state."""

    length: int
    pages: list[int]
    sampling: m.Sampling
    last: int = -1
    states: list[int] = field(default_factory=list)
    """Pages that hold the digest of all so far, whatever the length."""


@dataclass
class Row:
    """A chunk or a decode."""

    slot: Slot
    ids: list[int]
    samples: bool
    label: int | None = None
    """Set where the chunk is scored."""


class Outcome(NamedTuple):
    """What a row brought."""

    token: int | None
    score: Score | None
    prompt: list[Score] | None


class Device:
    """Runs plans; raises AssertionError where a real device would read or write what it must not."""

    def __init__(self, limits: Limits, vocabulary: int) -> None:
        self.limits, self.vocabulary = limits, vocabulary
        self.cells: list[list[tuple[int, int] | None]] = [
            [None] * limits.page_size for _ in range(limits.pages)
        ]
        self.slots: dict[int, Slot] = {}
        self.step = 0
        self.override: Callable[[int, int], int] | None = None
        """(seed, position) -> token, instead of the pretended model's."""

    def run(self, plan: m.Plan) -> m.Result:
        """Execute one plan, in the order of its fields."""
        self.step += 1
        assert plan.step == self.step
        for admit in plan.admits:
            pages, first = ints(admit.pages), self.limits.state_pages
            slot = Slot(admit.length, pages[first:], admit.sampling, states=pages[:first])
            self.slots[admit.slot] = slot
            assert not slot.states or not slot.length, "a state is not known for a prefix"
        for source, target in rows(plan.copies, 2):
            self.cells[target] = list(self.cells[source])
        for slot, page in rows(plan.growth, 2):
            self.slots[slot].pages.append(page)
        work = self._work(plan)
        self._no_conflicts(work)
        states = [self._read(row.slot) for row in work]
        outcomes = [self._write(row, state) for row, state in zip(work, states, strict=True)]
        return result(plan.step, outcomes)

    def _work(self, plan: m.Plan) -> list[Row]:
        ids = ints(plan.chunk_ids)
        labels = {row[0]: row[1] for row in rows(plan.scored, 2)}
        work, numbers = [], []
        for chunk, (slot, count, samples) in enumerate(rows(plan.chunks, 3)):
            assert count > 0
            taken = [ids.pop(0) for _ in range(count)]
            work.append(Row(self.slots[slot], taken, bool(samples), labels.pop(chunk, None)))
            numbers.append(slot)
        assert not ids
        assert not labels
        for slot in ints(plan.decodes):
            work.append(Row(self.slots[slot], [self.slots[slot].last], True))
            numbers.append(slot)
        assert len(set(numbers)) == len(numbers), "a slot appears twice"
        assert 0 < sum(len(row.ids) for row in work) <= self.limits.max_batched_tokens
        return work

    def _place(self, slot: Slot, position: int, group: int) -> tuple[int, int]:
        """Page and offset of a position, as a group of layers has it."""
        size, windows = self.limits.page_size, self.limits.windows
        page = slot.pages[position // size * len(windows) + group]
        assert page >= 0, f"group {group} has no page for position {position}"
        return page, position % size

    def _seen(self, slot: Slot) -> list[tuple[int, range]]:
        """What the row at the slot's next position looks at: (group, positions)."""
        windows = enumerate(self.limits.windows)
        return [(g, range(max(0, slot.length - w + 1) if w else 0, slot.length)) for g, w in windows]

    def _no_conflicts(self, work: list[Row]) -> None:
        """No row writes where another row of the step reads or writes."""
        writers = {}
        for index, row in enumerate(work):
            slot = row.slot
            for position in range(slot.length, slot.length + len(row.ids)):
                for group in range(len(self.limits.windows)):
                    cell = self._place(slot, position, group)
                    assert cell not in writers, f"{cell} is written twice"
                    writers[cell] = index
        for index, row in enumerate(work):
            for group, positions in self._seen(row.slot):
                for position in positions:
                    cell = self._place(row.slot, position, group)
                    assert writers.get(cell, index) == index, f"{cell} is read and written in one step"

    def _read(self, slot: Slot) -> int:
        """The digest before the slot's next position; every cell that is read must continue the last."""
        states = {self._read_group(slot, group, positions) for group, positions in self._seen(slot)}
        assert len(states) == 1, "groups of layers hold different sequences"
        state = states.pop()
        for page in slot.states if slot.length else ():
            assert self.cells[page][0] == (slot.length, state), "the state is not that of the sequence"
        assert state is not None, "a window of 1 holds nothing that the next token could be made from"
        return state

    def _read_group(self, slot: Slot, group: int, positions: range) -> int | None:
        state = 0 if positions.start == 0 else None
        for position in positions:
            page, offset = self._place(slot, position, group)
            cell = self.cells[page][offset]
            assert cell is not None, f"position {position} was never written"
            own = state is None or cell[1] == digest(state, cell[0])
            assert own, f"position {position} holds another sequence's KV"
            state = cell[1]
        return state

    def _write(self, row: Row, state: int) -> Outcome:
        slot, prompt, scored = row.slot, [], row.label is not None
        for index, token in enumerate(row.ids):
            if index and scored:
                prompt.append(self._score(state, token, slot.sampling.prompt_logprobs))
            state = digest(state, token)
            for group in range(len(self.limits.windows)):
                page, offset = self._place(slot, slot.length, group)
                self.cells[page][offset] = token, state
            slot.length += 1
        for page in slot.states:
            self.cells[page][0] = slot.length, state
        if row.label is not None and row.label >= 0:
            prompt.append(self._score(state, row.label, slot.sampling.prompt_logprobs))
        scores = prompt if scored else None
        if not row.samples:
            return Outcome(None, None, scores)
        slot.last = next_token(state, slot.sampling.seed, self.vocabulary)
        if self.override is not None:
            slot.last = self.override(slot.sampling.seed, slot.length)
        wants = slot.sampling.logprobs is not None
        return Outcome(
            slot.last, self._score(state, slot.last, slot.sampling.logprobs) if wants else None, scores
        )

    def _score(self, state: int, token: int, width: int | None) -> Score:
        return score(state, token, width or 0, self.vocabulary)


def result(step: int, outcomes: list[Outcome]) -> m.Result:
    """The message about a step."""
    sampled = [outcome for outcome in outcomes if outcome.token is not None]
    tokens = np.array([outcome.token for outcome in sampled], np.int32)
    of_tokens = [
        m.RowLogprobs(row, made.logprob, made.rank, _int32(made.top_ids), _float32(made.top))
        for row, outcome in enumerate(sampled)
        if (made := outcome.score) is not None
    ]
    of_prompts = [
        m.ChunkLogprobs(
            chunk,
            _float32([made.logprob for made in scores]),
            _int32([made.rank for made in scores]),
            _int32([made.top_ids for made in scores]),
            _float32([made.top for made in scores]),
        )
        for chunk, outcome in enumerate(outcomes)
        if (scores := outcome.prompt) is not None
    ]
    return m.Result(step, tokens.tobytes(), CLOCK, of_tokens, of_prompts)


def _int32(values: list[Any]) -> bytes:
    return np.array(values, np.int32).tobytes()


def _float32(values: list[Any]) -> bytes:
    return np.array(values, np.float32).tobytes()


@dataclass
class Stream:
    """What a detokenizer was told about one request."""

    request: m.Request
    opened: bool = False
    silenced: bool = False
    tokens: list[int] = field(default_factory=list)
    end: m.End | None = None
    cached: int | None = None
    """As announced with the first token."""
    scores: list[Score] = field(default_factory=list)
    """Of the tokens."""
    prompt_scores: list[Score] = field(default_factory=list)
    """Of the prompt from its second token on."""
    repeated: bool = False
    """It may be announced again: a scheduler died."""
    kept: bytes = b""

    def hear(self, opened: m.Open) -> None:
        """It is announced."""
        self.opened, self.kept = True, opened.request
        known = ints(opened.generated)
        assert known[: len(self.tokens)] == self.tokens[: len(known)]
        self.tokens += known[len(self.tokens) :]

    def forget(self) -> None:
        """What its detokenizer knew is lost."""
        self.opened, self.tokens, self.cached = False, [], None
        self.scores, self.prompt_scores = [], []


def unpack(part: m.PromptLogprobs) -> list[Score]:
    """One score for each of the prompt's tokens in the message."""
    values, ranks = floats(part.logprobs), ints(part.ranks)
    width = len(part.top_ids) // (4 * len(values))
    ids, top = ints(part.top_ids), floats(part.top)
    return [
        Score(value, rank, ids[i * width : (i + 1) * width], top[i * width : (i + 1) * width])
        for i, (value, rank) in enumerate(zip(values, ranks, strict=True))
    ]


def unpack_one(entry: m.TokenLogprobs) -> Score:
    """The score of one token."""
    return Score(entry.logprob, entry.rank, ints(entry.top_ids), floats(entry.top))


class World:
    """A core and its device, which is always one step late: a result comes after the next plan was made."""

    def __init__(self, vocabulary: int = 1000, **sizes: int | bool | str | Below | tuple[int, ...]) -> None:
        defaults = {
            "pages": 64,
            "page_size": 4,
            "max_seqs": 4,
            "max_batched_tokens": 16,
            "max_model_len": 128,
        }
        self.limits = Limits(**{**defaults, **sizes})  # type: ignore[arg-type]
        self.vocabulary = vocabulary
        self.core = Core(self.limits)
        self.disk: dict[bytes, Page] = {}
        self.disk_pages = 6
        self.flying: deque[m.Plan] = deque()
        self.renew_device()
        self.plans: list[m.Plan] = []
        self.streams: dict[int, Stream] = {}

    def renew_device(self) -> None:
        """An executor that knows nothing, with what is on its disk."""
        self.device = Device(self.limits, self.vocabulary)
        self.lower = Lower(self.device.cells, self.limits.below, self.disk, self._tell, self.disk_pages)
        self.flying.clear()
        if self.limits.below.disk:
            self.lower.introduce()

    def _tell(self, answer: m.Moved | m.Shelved) -> None:
        if isinstance(answer, m.Moved):
            self.core.moved(answer)
        else:
            self.core.shelved(answer)

    def submit(
        self,
        prompt: list[int],
        max_tokens: int | None = 4,
        stop_ids: tuple[int, ...] = (),
        seed: int = 0,
        silent: tuple[int, ...] = (),
        sampling: m.Sampling | None = None,
        stream: bool = True,
        **fields: Any,
    ) -> int:
        uid = len(self.streams) + 1
        request = m.Request(
            uid,
            0.0,
            np.array(prompt, np.int32).tobytes(),
            max_tokens,
            stop_ids,
            m.Sampling(seed=seed) if sampling is None else sampling,
            m.Output(0, stream),
            silent,
            **fields,
        )
        self.streams.update((choice, Stream(request)) for choice in choices_of(request))
        self.core.submit([request])
        self.collect()
        return uid

    def optimistic(self) -> World:
        """Let outputs be expected to stay short, so that more is admitted than the pool can hold."""
        self.core._requests.batch.ratio.value = 0.0
        return self

    def plan(self) -> m.Plan | None:
        plan = self.core.next_plan()
        self.lower.give(self.core.take_moves())
        if plan is not None:
            self.flying.append(plan)
            self.plans.append(plan)
        self.collect()
        return plan

    def report(self) -> m.Result:
        """Execute the oldest plan in flight and hand its result over."""
        plan = self.flying.popleft()
        self.lower.before(plan.after)
        result = self.device.run(plan)
        self.core.advance(result)
        self.collect()
        return result

    def turn(self) -> None:
        """Plan all that may be in flight, then let one step report; fails where the core is stuck."""
        while self.plan() is not None:
            pass
        if self.flying:
            self.report()
        elif self.lower.disk_moves:
            self.lower.answer(0, fails=False)
        else:
            assert not self.core.busy, "requests wait and nothing is in flight"

    def drain(self) -> None:
        """Turn until nothing lives."""
        while self.core.busy:
            self.turn()
            self.core.check()

    def restart(self, pages: int | None = None, killed: bool = False) -> None:
        """The device is lost, with all it had in flight."""
        self.core.restart(self.limits.pages if pages is None else pages, self.limits.below, killed)
        self.limits = self.core.limits
        self.renew_device()
        self.collect()

    def lose_detokenizer(self, index: int) -> None:
        """A detokenizer dies, and another takes its place."""
        for uid, stream in self.streams.items():
            lives = stream.end is None and not stream.silenced
            if lives and uid % self.limits.detokenizers == index:
                stream.forget()
        self.core.retell(index)
        self.collect()

    def lose_scheduler(self) -> None:
        """The scheduler dies; another goes on with what the detokenizers have."""
        held = []
        for uid, stream in self.streams.items():
            if stream.end is None and not stream.silenced:
                stream.repeated = True
                held.append(m.Held(uid, stream.kept, _int32(stream.tokens)))
        self.core = Core(self.limits)
        self.renew_device()
        for request, uids in requests_of(held):
            self.core.recall(request, uids)
        self.collect()

    def stop(self, uid: int) -> None:
        self.streams[uid].silenced = True
        self.core.stop([uid])
        self.collect()

    def expire(self, now: float) -> None:
        self.core.expire(now)
        self.collect()

    def abort(self, uid: int) -> None:
        self.core.abort([uid])
        self.collect()

    def collect(self) -> None:
        """Read what the detokenizers get, and hold it against the rules of `messages.Tokens`."""
        for detokenizer, message in self.core.take():
            for opened in message.opens:
                stream = self._stream(opened.uid, detokenizer)
                assert not stream.opened or stream.repeated
                assert opened.prompt_tokens == len(stream.request.prompt_ids) // 4
                stream.hear(opened)
            self._collect_scores(message, detokenizer)
            self._collect_tokens(message, detokenizer)
            for end in message.ends:
                stream = self._stream(end.uid, detokenizer)
                assert stream.opened
                stream.end = end

    def _collect_scores(self, message: m.Tokens, detokenizer: int) -> None:
        for part in message.prompt_logprobs:
            stream = self._stream(part.uid, detokenizer)
            assert stream.opened
            known = 1 + len(stream.prompt_scores) - part.start
            assert known == 0 or (known > 0 and stream.repeated)
            assert not stream.tokens or known
            stream.prompt_scores += unpack(part)[known:]
        for uid, cached in message.hits:
            stream = self._stream(uid, detokenizer)
            assert stream.opened
            assert stream.cached is None or stream.repeated
            stream.cached = cached if stream.cached is None else stream.cached

    def _collect_tokens(self, message: m.Tokens, detokenizer: int) -> None:
        uids = np.frombuffer(message.uids, np.int64).tolist()
        ids, indices = ints(message.ids), ints(message.indices)
        assert len(set(uids)) == len(uids) == len(ids) == len(indices)
        for uid, token, index in zip(uids, ids, indices, strict=True):
            if self.streams[uid].silenced and self.streams[uid].request.output.patient:
                continue  # told with others, after it was stopped: a detokenizer knows it no more
            stream = self._stream(uid, detokenizer)
            assert stream.opened
            assert stream.cached is not None
            assert index == len(stream.tokens)
            stream.tokens.append(token)
        scores = [(entry.uid, unpack_one(entry)) for entry in message.logprobs]
        assert [uid for uid, _ in scores] == [uid for uid in uids if self._wants_scores(uid)]
        for uid, made in scores:
            self.streams[uid].scores.append(made)

    def _wants_scores(self, uid: int) -> bool:
        request = self.streams[uid].request
        return request.sampling.logprobs is not None or request.beams is not None

    def _stream(self, uid: int, detokenizer: int) -> Stream:
        assert uid % self.limits.detokenizers == detokenizer
        stream = self.streams[uid]
        assert stream.end is None, f"request {uid} ended already"
        assert not stream.silenced, f"request {uid} was silenced"
        return stream

    def end(self, uid: int) -> m.End:
        """The last word on a request that has ended."""
        end = self.streams[uid].end
        assert end is not None, f"request {uid} has not ended"
        return end

    def fault(self, uid: int) -> m.Fault:
        """Why a request failed."""
        fault = self.end(uid).fault
        assert fault is not None
        return fault

    def output(self, uid: int) -> tuple[list[int], str]:
        """Tokens and finish reason of a request that has ended."""
        return self.streams[uid].tokens, self.end(uid).reason

    def expect_scores(self, uid: int) -> tuple[list[Score], list[Score]]:
        """What the scores of a request's prompt and of its tokens so far ought to be."""
        stream = self.streams[uid]
        sampling, prompt = stream.request.sampling, ints(stream.request.prompt_ids)
        tokens = prompt + stream.tokens
        states = digests(tokens)
        first = stream.request.uid == uid
        scored = range(1, len(prompt)) if first and sampling.prompt_logprobs is not None else ()
        sampled = range(len(prompt), len(tokens)) if self._wants_scores(uid) else ()
        wide, narrow = sampling.prompt_logprobs or 0, sampling.logprobs or 0
        return (
            [score(states[at], tokens[at], wide, self.vocabulary) for at in scored],
            [score(states[at], tokens[at], narrow, self.vocabulary) for at in sampled],
        )

    def expect(self, uid: int) -> tuple[list[int], str]:
        """What `output` ought to be."""
        request = self.streams[uid].request
        if request.beams is None:
            return oracle(request, self.limits, self.vocabulary)
        beam = beam_oracle(request, self.limits, self.vocabulary)[uid - request.uid]
        return ints(beam.ids), "length" if beam.stop_id is None else "stop"


def first_token(prompt: list[int], **sizes: int | bool | str | tuple[int, ...]) -> int:
    """What the pretended model says after a prompt."""
    world = World(**sizes)
    uid = world.submit(prompt, 1)
    world.drain()
    return world.output(uid)[0][0]
