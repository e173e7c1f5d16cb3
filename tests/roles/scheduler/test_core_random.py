"""Random operations on the core against a naive oracle: each request alone in the world."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stretto.tests.roles.scheduler.device import World, ints

VOCABULARY = 3


class Order(NamedTuple):
    """A request to be made."""

    prompt: list[int]
    max_tokens: int | None
    stops: set[int]
    seed: int


ORDERS = st.builds(
    Order,
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12),
    max_tokens=st.one_of(st.none(), st.integers(1, 20)),
    stops=st.sets(st.integers(0, 5 * VOCABULARY), max_size=6),
    seed=st.integers(0, 3),
)


class Machine(RuleBasedStateMachine):
    """Submit, plan, report, abort, stop, lose the device, in any order, with hardly any memory."""

    @initialize(
        pages=st.integers(1, 12),
        page_size=st.integers(1, 5),
        max_seqs=st.integers(1, 5),
        budget=st.integers(1, 9),
        context=st.integers(2, 30),
        overlap=st.booleans(),
        cache=st.booleans(),
        detokenizers=st.integers(1, 2),
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
        )
        self.restarts = 0

    @rule(orders=st.lists(ORDERS, min_size=1, max_size=5))
    def submit(self, orders: list[Order]) -> None:
        for order in orders:
            self._submit(order.prompt, order)

    @rule(order=ORDERS, pick=st.integers(0), trim=st.sampled_from([0, 0, 1, 2, 5, 10]))
    def follow_up(self, order: Order, pick: int, trim: int) -> None:
        """Submit prompt and output of an earlier request without the last few, and something new."""
        uid = self._uid(pick)
        if uid is not None:
            stream = self.world.streams[uid]
            history = ints(stream.request.prompt_ids) + stream.tokens
            self._submit(history[: len(history) - trim] + order.prompt[:3], order)

    def _submit(self, prompt: list[int], order: Order) -> None:
        uid = self.world.submit(prompt, order.max_tokens, tuple(order.stops), order.seed)
        refused = self.world.limits.refusal(len(prompt), order.max_tokens) is not None
        assert (self.world.streams[uid].end is not None) == refused

    @rule()
    def plan(self) -> None:
        if self.world.plan() is None and not self.world.flying:
            assert not self.world.core.busy, "requests wait and nothing is in flight"

    @rule()
    def report(self) -> None:
        if self.world.flying:
            self.world.report()

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
        if stream.end is not None and stream.end.reason in ("stop", "length"):
            assert self.world.output(uid) == self.world.expect(uid)
        elif stream.end is not None and stream.end.reason == "error":
            assert stream.end.fault is not None
            assert stream.end.fault.status == 400 or self.restarts >= 2
        elif stream.tokens:
            expected = self.world.expect(uid)[0]
            assert stream.tokens == expected[: len(stream.tokens)]


TestCore = Machine.TestCase
TestCore.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
