"""Beam search against a dense transcription of transformers, and against all sequences there are."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.roles import messages as m
from stretto.roles.scheduler.beams import Beam, BeamSearch
from stretto.tests.roles.scheduler.device import answer, digests, floats, ints, logprob, ranking

Floats = npt.NDArray[np.float32]
Early = bool | Literal["never"]
LOW = np.float32(-1e9)


def told(ids: list[int], logprobs: list[float]) -> m.TokenLogprobs:
    return m.TokenLogprobs(
        0, 0.0, 1, np.array(ids, np.int32).tobytes(), np.array(logprobs, np.float32).tobytes()
    )


def search(
    prompt: list[int],
    beams: m.Beams,
    stops: tuple[int, ...],
    room: int,
    vocabulary: int,
    alternatives: int = 0,
) -> list[Beam]:
    found = BeamSearch(beams, stops, room, alternatives)
    while not found.over:
        states = [digests(prompt + ints(beam.ids))[-1] for beam in found.running]
        found.advance([answer(state, found.fanout, vocabulary) for state in states])
    return found.results()


def best_of(scores: Floats, count: int) -> npt.NDArray[np.int64]:
    """torch.topk's indices, ties by index."""
    return np.argsort(-scores, kind="stable")[:count]


def dense(
    prompt: list[int], beams: m.Beams, stops: tuple[int, ...], room: int, vocabulary: int
) -> list[tuple[list[int], np.float32]]:
    """`_beam_search` of transformers 5 for one prompt, tensor by tensor, with lists for sequences."""
    width, penalty, early = beams.width, beams.length_penalty, beams.early_stopping
    keep = max(2, 1 + len(stops)) * width
    running: list[list[int]] = [[] for _ in range(width)]
    running_scores = np.array([0] + [LOW] * (width - 1), np.float32)
    done: list[list[int]] = [[] for _ in range(width)]
    done_scores, is_done = np.full(width, LOW), np.zeros(width, bool)
    unsatisfied, length = True, 0
    while True:
        states = [digests(prompt + tokens)[-1] for tokens in running]
        logprobs = np.array(
            [[logprob(state, token) for token in range(vocabulary)] for state in states], np.float32
        )
        flat = (logprobs + running_scores[:, None]).reshape(-1)
        top = best_of(flat, keep)
        scores = flat[top]
        sequences = [[*running[at // vocabulary], int(at % vocabulary)] for at in top]
        hits = np.array([tokens[-1] in stops or length + 1 >= room for tokens in sequences])
        alive = scores + hits.astype(np.float32) * LOW
        order = best_of(alive, width)
        running, running_scores = [sequences[at] for at in order], alive[order]
        finished = hits & (np.arange(keep) < width)
        normal = scores / np.float32((length + 1) ** penalty)
        normal = normal + np.float32(is_done.all() and early is True) * LOW
        normal = normal + np.float32(not unsatisfied) * LOW + (~finished).astype(np.float32) * LOW
        merged = np.concatenate([done_scores, normal])
        order = best_of(merged, width)
        done = [(done + sequences)[at] for at in order]
        done_scores, is_done = merged[order], np.concatenate([is_done, finished])[order]
        length += 1
        hypothetical = room if early == "never" and penalty > 0 else length
        possible = running_scores[0] / np.float32(hypothetical**penalty)
        worst = np.where(is_done, done_scores.min(), LOW)
        unsatisfied = unsatisfied and bool((possible > worst).any())
        if not unsatisfied or (is_done.all() and early is True) or hits.all():
            return list(zip(done, done_scores, strict=True))[: beams.n]


@settings(max_examples=30, deadline=None)
@given(
    prompt=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    width=st.integers(1, 4),
    stops=st.integers(0, 2),
    room=st.integers(1, 8),
    extra=st.integers(0, 6),
)
def test_the_same_beams_as_transformers(
    prompt: list[int], width: int, stops: int, room: int, extra: int
) -> None:
    vocabulary, ids = max(2, 1 + stops) * width + extra, tuple(range(stops))
    earlies: tuple[Early, ...] = (False, True, "never")
    for penalty, early in product((-1.0, 0.0, 0.5, 1.0, 2.0), earlies):
        beams = m.Beams(width, width, penalty, early)
        found = search(prompt, beams, ids, room, vocabulary)
        expected = dense(prompt, beams, ids, room, vocabulary)
        assert [ints(beam.ids) for beam in found] == [tokens for tokens, _ in expected]
        scores = [beam.score / np.float32(len(beam) ** penalty) for beam in found]
        assert scores == [score for _, score in expected]


def test_enough_beams_run_on_where_all_stops_are_likeliest() -> None:
    found = BeamSearch(m.Beams(2, 2), (0, 1, 2), 9, 0)
    assert found.fanout == 8
    found.advance([told(list(range(8)), [-at for at in range(8)])])
    assert [ints(beam.ids) for beam in found.running] == [[3], [4]]


def test_a_penalty_for_shortness_does_not_look_ahead_to_the_longest_output() -> None:
    found = BeamSearch(m.Beams(2, 2, length_penalty=-1.0, early_stopping="never"), (0,), 30, 0)
    found.advance([told([5, 0, 6, 7], [-1, -30, -31, -32])])
    found.advance([told([5, 0, 6, 7], [-1, -20, -90, -91]), told([5, 0, 6, 7], [-95, -96, -97, -98])])
    assert [ints(beam.ids) for beam in found.results()] == [[0], [5, 0]]
    assert not found.over  # -2 * 2 is better than -21 * 2, as -2 * 30 would not be


def test_beams_as_wide_as_the_tree_find_the_best_of_all_sequences() -> None:
    vocabulary, room, stop = 4, 4, 3
    beams = m.Beams(width=81, n=5, length_penalty=0.0, early_stopping="never")
    found = search([7], beams, (stop,), room, vocabulary)
    everything = set()
    for tokens in product(range(vocabulary), repeat=room):
        end = tokens.index(stop) + 1 if stop in tokens else room
        everything.add(tokens[:end])
    scored = sorted(((score([7], list(tokens)), tokens) for tokens in everything), reverse=True)
    assert [(float(beam.score), tuple(ints(beam.ids))) for beam in found] == scored[:5]


def score(prompt: list[int], tokens: list[int]) -> float:
    states = digests(prompt + tokens)
    return sum(logprob(states[len(prompt) + at], token) for at, token in enumerate(tokens))


def test_a_beam_tells_of_its_tokens_and_how_it_ended() -> None:
    beams = m.Beams(width=3, n=3)
    found = search([1, 2], beams, (0, 1, 2, 3), 6, 20, alternatives=2)
    for beam in found:
        tokens = ints(beam.ids)
        states = digests([1, 2, *tokens])
        for at, (token, told) in enumerate(zip(tokens, beam.tokens, strict=True)):
            best = ranking(states[2 + at], 20)
            assert told.logprob == logprob(states[2 + at], token)
            assert told.rank == 1 + [entry for _, entry in best].index(token)
            assert ints(told.top_ids) == [entry for _, entry in best[:2]]
            assert floats(told.top) == [value for value, _ in best[:2]]
        assert sum(told.logprob for told in beam.tokens) == beam.score
        assert beam.stop_id == (tokens[-1] if tokens[-1] < 4 else None)
    assert {len(beam) for beam in found} != {6}


def test_equally_likely_tokens_share_a_rank() -> None:
    found = BeamSearch(m.Beams(2, 2), (), 1, 0)
    ids, top = np.array([5, 8, 9], np.int32), np.array([-1.0, -1.0, -3.0], np.float32)
    found.advance([m.TokenLogprobs(0, 0.0, 1, ids.tobytes(), top.tobytes())])
    assert [(beam.tokens[0].rank, ints(beam.ids)) for beam in found.results()] == [(1, [5]), (1, [8])]


def test_no_tokens_are_allowed() -> None:
    found = BeamSearch(m.Beams(2, 2), (), 0, 0)
    assert found.over
    assert found.results() == [Beam(), Beam()]


def test_fewer_sequences_than_asked_for_repeat_the_last() -> None:
    found = search([1], m.Beams(5, 5), (), 1, vocabulary=2)
    assert len({beam.ids for beam in found}) == 2
    assert found[1:] == [found[1]] * 4


@pytest.mark.parametrize("penalty", [5000.0, -5000.0])
def test_no_length_penalty_is_too_large(penalty: float) -> None:
    assert len(search([1], m.Beams(2, 2, penalty), (0, 1), 8, 9)) == 2
