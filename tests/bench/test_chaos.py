"""How the chaos bench judges."""

from __future__ import annotations

import pytest

from stretto.bench.chaos import difference, pauses
from stretto.bench.havoc import Blow
from stretto.bench.trials import Outcome, trials


def outcome(*pieces: tuple[str, list[int]], beats: list[float] | None = None) -> Outcome:
    made = Outcome()
    for text, ids in pieces:
        made.piece(0, text, ids)
    made.end(0, "stop")
    made.count(3, 2)
    made.beats = made.beats if beats is None else beats
    return made


RIGHT = outcome(("ab", [1, 2])).answer


def test_an_answer_may_come_in_other_pieces() -> None:
    assert difference(RIGHT, outcome(("a", [1]), ("b", [2]))) == ""


@pytest.mark.parametrize(
    "wrong",
    [outcome(("a", [1])), outcome(("ab", [1, 2, 2])), outcome(("ac", [1, 2])), Outcome()],
    ids=["lost", "repeated", "altered", "nothing"],
)
def test_what_is_lost_repeated_or_altered_is_told(wrong: Outcome) -> None:
    assert difference(RIGHT, wrong).startswith("altered: choice 0 is" if wrong.answer else "altered: choice ")


def test_an_error_is_told() -> None:
    failed = outcome(("ab", [1, 2]))
    failed.error = "HTTP 503"
    assert difference(RIGHT, failed) == "failed: HTTP 503"


def test_a_choice_that_ends_twice_is_an_error() -> None:
    twice = outcome(("ab", [1, 2]))
    twice.end(0, "stop")
    assert difference(RIGHT, twice) == "failed: choice 0 ended twice"


def test_a_pause_is_the_longest_wait_of_a_stream_that_was_hit() -> None:
    blows = [Blow(10.0, ("executor",), "kill"), Blow(20.0, ("scheduler",), "kill")]
    hit = outcome(beats=[9.0, 10.5, 14.5, 15.0, 29.0])
    begun_later, over_before = outcome(beats=[11.0, 19.0]), outcome(beats=[1.0, 9.5])
    outcomes = [hit, begun_later, over_before]
    assert pauses(blows[:1], outcomes, "executor", "kill") == [14.0]
    assert pauses(blows, [outcome(beats=[9.0, 10.5, 14.5, 20.5])], "executor", "kill") == [6.0]
    assert pauses(blows, outcomes, "executor", "freeze") == []


def test_every_variety_is_asked_over_both_transports() -> None:
    bodies = [trial.body for trial in trials(8)]
    assert len(bodies) == 2 * len({repr(body) for body in bodies})
    assert all(body["temperature"] == 0 or "seed" in body for body in bodies)
