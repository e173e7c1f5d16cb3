"""The overlap report, from clocks."""

from __future__ import annotations

from collections import Counter

from stretto.roles import messages as m
from stretto.roles.scheduler.overlap import Overlap


class Meter(Counter[str]):
    def add(self, name: str, amount: float = 1.0) -> None:
        self[name] += amount  # type: ignore[assignment]


def run(*steps: tuple[bool, float, float, float]) -> Meter:
    """(cold, queued, started, ended) of each step."""
    meter = Meter()
    overlap = Overlap(meter)
    for step, (cold, *_) in enumerate(steps):
        overlap.planned(m.Plan(step + 1, cold=cold))
    for _, queued, started, ended in steps:
        overlap.reported(m.Clock(queued, started, ended, idle=0.5))
    return meter


def test_a_step_is_ahead_when_it_was_queued_before_the_last_one_ended() -> None:
    meter = run((True, 0, 0, 10), (False, 4, 10, 20), (False, 21, 22, 30), (False, 30, 30, 32))
    assert meter["steps_total"] == 4
    assert meter["steps_followed_total"] == 3
    assert meter["steps_ahead_total"] == 2
    assert meter["device_busy_seconds_total"] == 10 + 10 + 8 + 2
    assert meter["device_idle_seconds_total"] == 2.0


def test_a_cold_step_follows_nothing() -> None:
    meter = run((True, 0, 0, 10), (True, 4, 10, 20))
    assert meter["steps_followed_total"] == 0
    assert meter["steps_ahead_total"] == 0


def test_a_new_device_follows_nothing() -> None:
    meter = Meter()
    overlap = Overlap(meter)
    overlap.planned(m.Plan(1))
    overlap.reported(m.Clock(0, 0, 10, 0))
    overlap.planned(m.Plan(2))
    overlap.restart()
    overlap.planned(m.Plan(1))
    overlap.reported(m.Clock(5, 11, 12, 0))
    assert meter["steps_total"] == 2
    assert meter["steps_followed_total"] == 0
