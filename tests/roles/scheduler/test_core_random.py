"""Random operations on the core against a naive oracle: each request alone in the world."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stretto.tests.roles.scheduler.device import World

VOCABULARY = 3
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)


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
        self.aborted: set[int] = set()

    @rule(
        prompt=TOKENS,
        max_tokens=st.one_of(st.none(), st.integers(1, 12)),
        stops=st.sets(st.integers(0, 2 * VOCABULARY), max_size=6),
        seed=st.integers(0, 3),
        pick=st.integers(0),
        trim=st.sampled_from([None, 0, 0, 1, 2, 5, 10]),
    )
    def submit(
        self,
        prompt: list[int],
        max_tokens: int | None,
        stops: set[int],
        seed: int,
        pick: int,
        trim: int | None,
    ) -> None:
        if trim is not None and self.world.streams:
            prompt = self._history(pick, trim) + prompt[:3]
        uid = self.world.submit(prompt, max_tokens, tuple(stops), seed)
        refused = self.world.limits.refusal(len(prompt), max_tokens) is not None
        assert (self.world.streams[uid].end is not None) == refused

    def _history(self, pick: int, trim: int) -> list[int]:
        """Prompt and output of some earlier request, without the last few."""
        stream = self.world.streams[1 + pick % len(self.world.streams)]
        history = list(memoryview(stream.request.prompt_ids).cast("i")) + stream.tokens
        return history[: max(1, len(history) - trim)]

    @rule()
    def plan(self) -> None:
        if self.world.plan() is None and not self.world.flying:
            assert not self.world.core.busy, "requests wait and nothing is in flight"

    @precondition(lambda self: self.world.flying)
    @rule()
    def report(self) -> None:
        self.world.report()

    @rule(turns=st.integers(1, 6))
    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.world.turn()
            self.world.core.check()

    @precondition(lambda self: self.world.streams)
    @rule(pick=st.integers(0))
    def abort(self, pick: int) -> None:
        uid = 1 + pick % len(self.world.streams)
        stream = self.world.streams[uid]
        alive = stream.end is None and not stream.silenced
        self.world.abort(uid)
        if alive:
            self.aborted.add(uid)
            assert stream.end is not None
            assert stream.end.reason == "abort"

    @precondition(lambda self: self.world.streams)
    @rule(pick=st.integers(0))
    def stop(self, pick: int) -> None:
        uid = 1 + pick % len(self.world.streams)
        if self.world.streams[uid].end is None:
            self.world.stop(uid)

    @rule()
    def lose_the_device(self) -> None:
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
