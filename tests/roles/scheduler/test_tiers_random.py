"""Conversations that come back when the pool has long forgotten them, over tiers that fail at random."""

from __future__ import annotations

from typing import Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stretto.roles.scheduler.below import Below
from stretto.tests.roles.scheduler.device import World

PROMPTS = [[10 * talk + at for at in range(8)] for talk in range(5)]


class Machine(RuleBasedStateMachine):
    """A pool for two conversations of five; each request's tokens must be those it has alone in the world."""

    @initialize(
        page_size=st.integers(1, 3),
        host_pages=st.integers(1, 24),
        disk=st.booleans(),
        write=st.sampled_from(["back", "through", "selective"]),
        overlap=st.booleans(),
    )
    def begin(
        self,
        page_size: int,
        host_pages: int,
        disk: bool,
        write: Literal["back", "through", "selective"],
        overlap: bool,
    ) -> None:
        below = Below(host_pages, disk, write)
        pages = 24 // page_size
        self.world = World(pages=pages, page_size=page_size, max_model_len=20, overlap=overlap, below=below)
        self.world.disk_pages = self.world.lower.capacity = 12

    @rule(
        talks=st.lists(st.integers(0, 4), min_size=1, max_size=4), tail=st.integers(0, 3), salt=st.booleans()
    )
    def ask(self, talks: list[int], tail: int, salt: bool) -> None:
        for talk in talks:
            prompt = PROMPTS[talk] + [90] * tail
            self.world.submit(prompt, 4, seed=talk, cache_salt="salt" if salt else "")

    @rule(turns=st.integers(1, 20), quick=st.booleans())
    def run(self, turns: int, quick: bool) -> None:
        for _ in range(turns):
            self.world.turn()
            if quick:
                self.answer(0, 1, fails=False)

    @rule(times=st.integers(1, 3))
    def transfer(self, times: int) -> None:
        for _ in range(min(times, len(self.world.lower.transfers))):
            self.world.lower.transfer()

    @rule(pick=st.integers(0), times=st.integers(1, 4), fails=st.sampled_from([False, False, False, True]))
    def answer(self, pick: int, times: int, fails: bool) -> None:
        for _ in range(min(times, len(self.world.lower.disk_moves))):
            self.world.lower.answer(pick, fails)

    @rule(dice=st.integers(1, 8))
    def lose(self, dice: int) -> None:
        if dice == 1:
            self.world.restart()
        elif dice == 2:
            self.world.lose_scheduler()

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "world"):
            self.world.core.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain()
            for uid, stream in self.world.streams.items():
                if stream.end is None or stream.end.reason != "error":
                    assert self.world.output(uid) == self.world.expect(uid)


TestTiers = Machine.TestCase
TestTiers.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
