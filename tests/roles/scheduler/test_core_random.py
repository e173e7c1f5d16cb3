"""Random operations on the core against a naive oracle: each request alone in the world."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stretto.roles import messages as m
from stretto.roles.scheduler.below import Below
from stretto.tests.roles.scheduler.device import World, ints

VOCABULARY = 3


class Order(NamedTuple):
    """A request to be made."""

    prompt: list[int]
    max_tokens: int | None
    stops: set[int]
    sampling: m.Sampling
    priority: int
    patience: int | None
    """Ticks until its deadline."""
    salt: str
    stream: bool


SCORES = st.sampled_from([None, None, None, 0, 2])
SAMPLINGS = st.builds(m.Sampling, seed=st.integers(0, 3), logprobs=SCORES, prompt_logprobs=SCORES)
BEAMS = st.builds(
    lambda n, more, penalty, early: m.Beams(n + more, n, penalty, early),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([1.0, 1.0, 0.0, -1.0]),
    st.sampled_from([False, True, "never"]),
)
ORDERS = st.builds(
    Order,
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12),
    max_tokens=st.one_of(st.none(), st.integers(0, 20)),
    stops=st.sets(st.integers(0, 5 * VOCABULARY), max_size=6),
    sampling=SAMPLINGS,
    priority=st.sampled_from([0, 0, 0, -1, 1]),
    patience=st.sampled_from([None, None, None, 1, 3]),
    salt=st.sampled_from(["", "", "ours", "theirs"]),
    stream=st.booleans(),
)


BELOWS = st.one_of(
    st.just(Below()),
    st.builds(
        Below,
        host_pages=st.integers(1, 9),
        disk=st.booleans(),
        write=st.sampled_from(["back", "through", "selective"]),
        compute_seconds=st.sampled_from([math.inf, math.inf, math.inf, 0.0]),
    ),
)


class Machine(RuleBasedStateMachine):
    """Submit, plan, report, abort, stop, expire, lose the device, in any order, with hardly any memory."""

    @initialize(
        pages=st.integers(1, 24),
        page_size=st.integers(1, 5),
        max_seqs=st.integers(1, 5),
        budget=st.integers(1, 9),
        context=st.integers(2, 30),
        overlap=st.booleans(),
        cache=st.booleans(),
        detokenizers=st.integers(1, 2),
        policy=st.sampled_from(["prefix", "fcfs", "priority"]),
        overtakes=st.integers(0, 6),
        shared=st.integers(1, 9),
        ratio=st.sampled_from([0.0, 0.0, 0.3, 0.7]),
        below=BELOWS,
        state_pages=st.sampled_from([0, 0, 0, 1, 2]),
        windows=st.sampled_from([(0,), (0,), (2,), (5,), (0, 3), (3, 7), (0, 4, 4)]),
    )
    def begin(
        self,
        pages: int,
        page_size: int,
        max_seqs: int,
        budget: int,
        context: int,
        overlap: bool,
        cache: bool,
        detokenizers: int,
        policy: str,
        overtakes: int,
        shared: int,
        ratio: float,
        below: Below,
        state_pages: int,
        windows: tuple[int, ...],
    ) -> None:
        self.world = World(
            VOCABULARY,
            pages=pages,
            page_size=page_size,
            max_seqs=max_seqs,
            max_batched_tokens=budget,
            max_model_len=context,
            overlap=overlap,
            prefix_cache=cache,
            detokenizers=detokenizers,
            policy=policy,
            max_overtakes=overtakes,
            shared_tokens=shared,
            below=below if cache and windows == (0,) else Below(),
            windows=windows,
            state_pages=state_pages,
        )
        self.world.core._requests.batch.ratio.value = ratio
        self.restarts = 0
        self.now = 0

    @rule(orders=st.lists(ORDERS, min_size=1, max_size=5))
    def submit(self, orders: list[Order]) -> None:
        for order in orders:
            self._submit(order.prompt, order)

    @rule(
        order=ORDERS,
        pick=st.integers(0),
        trim=st.sampled_from([0, 0, 1, 2, 5, 10]),
        times=st.sampled_from([1, 1, 2, 4]),
    )
    def follow_up(self, order: Order, pick: int, trim: int, times: int) -> None:
        """Submit prompt and output of an earlier request without the last few, and something new."""
        uid = self._uid(pick)
        if uid is not None:
            stream = self.world.streams[uid]
            history = ints(stream.request.prompt_ids) + stream.tokens
            for _ in range(times):
                self._submit(history[: len(history) - trim] + order.prompt[:3], order)

    @rule(order=ORDERS, choices=st.integers(2, 5))
    def fork(self, order: Order, choices: int) -> None:
        leader = self._submit(order.prompt, order)
        for _ in range(1, choices):
            self._submit(order.prompt, order, leader=leader)

    @rule(order=ORDERS, beams=BEAMS)
    def search(self, order: Order, beams: m.Beams) -> None:
        self._submit(order.prompt, order, beams=beams)

    def _submit(self, prompt: list[int], order: Order, **fields: Any) -> int:
        deadline = None if order.patience is None else float(self.now + order.patience)
        uid = self.world.submit(
            prompt,
            order.max_tokens,
            tuple(order.stops),
            sampling=order.sampling,
            priority=order.priority,
            deadline=deadline,
            cache_salt=order.salt,
            stream=order.stream,
            **fields,
        )
        refused = self.world.limits.refusal(len(prompt), order.max_tokens) is not None
        assert (self.world.streams[uid].end is not None) == refused
        return uid

    @rule()
    def tick(self) -> None:
        self.now += 1
        self.world.expire(self.now)
        for stream in self.world.streams.values():
            deadline = stream.request.deadline
            assert deadline is None or deadline > self.now or stream.end is not None or stream.silenced

    @rule()
    def plan(self) -> None:
        if self.world.plan() is None and not self.world.flying and not self.world.lower.disk_moves:
            assert not self.world.core.busy, "requests wait and nothing is in flight"

    @rule()
    def report(self) -> None:
        if self.world.flying:
            self.world.report()

    @rule(times=st.integers(1, 3))
    def transfer(self, times: int) -> None:
        for _ in range(min(times, len(self.world.lower.transfers))):
            self.world.lower.transfer()

    @rule(pick=st.integers(0), fails=st.sampled_from([False, False, False, True]))
    def answer_from_disk(self, pick: int, fails: bool) -> None:
        if self.world.lower.disk_moves:
            self.world.lower.answer(pick, fails)

    @rule(turns=st.integers(1, 9))
    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.world.turn()
            self.world.core.check()

    @rule(pick=st.integers(0), silently=st.booleans())
    def cut_off(self, pick: int, silently: bool) -> None:
        uid = self._uid(pick)
        if uid is None or self.world.streams[uid].end is not None or self.world.streams[uid].silenced:
            return
        if silently:
            self.world.stop(uid)
        else:
            self.world.abort(uid)
            assert self.world.end(uid).reason == "abort"

    def _uid(self, pick: int) -> int | None:
        count = len(self.world.streams)
        return 1 + pick % count if count else None

    @rule(dice=st.integers(1, 6))
    def lose_the_device(self, dice: int) -> None:
        if dice == 6:
            self.world.restart()
            self.restarts += 1

    @rule(pick=st.integers(0))
    def lose_a_detokenizer(self, pick: int) -> None:
        self.world.lose_detokenizer(pick % self.world.limits.detokenizers)

    @rule(dice=st.integers(1, 3))
    def lose_the_scheduler(self, dice: int) -> None:
        if dice == 3:
            self.world.lose_scheduler()

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "world"):
            self.world.core.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.drain()
        free, cached, owned = self.world.core.pages
        assert (free + cached, owned) == (self.world.limits.pages, 0)
        for uid, stream in self.world.streams.items():
            self._check_stream(uid)
            assert stream.opened
            assert (stream.end is None) == stream.silenced

    def _check_stream(self, uid: int) -> None:
        stream = self.world.streams[uid]
        if stream.end is not None and stream.end.reason == "error":
            code = self.world.fault(uid).code
            if code in ("context_length_exceeded", "kv_pool_exceeded"):
                assert stream.tokens == stream.prompt_scores == []
                return
            assert code == "timeout" or self.restarts >= 3
        tokens, reason = self.world.expect(uid)
        prompt_scores, scores = self.world.expect_scores(uid)
        assert stream.scores == scores
        if stream.end is not None and stream.end.reason in ("stop", "length"):
            assert self.world.output(uid) == (tokens, reason)
            assert stream.prompt_scores == prompt_scores
        else:
            assert stream.tokens == tokens[: len(stream.tokens)]
            assert stream.prompt_scores == prompt_scores[: len(stream.prompt_scores)]


TestCore = Machine.TestCase
TestCore.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
