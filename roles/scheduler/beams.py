"""Beam search: which continuations live on, and when it is over.

The rule is that of Hugging Face transformers 5 (`GenerationMixin._beam_search`, not sampling), step by step
and in float32, so that the same log-probabilities give the same beams. A step takes the best continuations of
all running beams together. Of the best `width` those that are complete compete, by normalised score, for the
`width` places of the result; the best `width` incomplete ones run on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stretto.roles import messages as m


class Beam(NamedTuple):
    """A sequence of generated tokens."""

    ids: bytes = b""
    """int32"""
    score: np.float32 = np.float32(0)
    """Sum of the tokens' log-probabilities, added up in order."""
    tokens: tuple[m.TokenLogprobs, ...] = ()
    """One per token, with as many alternatives as the request wants; their `uid` means nothing."""
    stop_id: int | None = None
    """The stop id it ends with."""

    def __len__(self) -> int:
        return len(self.tokens)


class BeamSearch:
    """The beams of one request, which generates at most `room` tokens.

    `alternatives` of each token are kept to be reported. `running` are the beams that want an answer.
    """

    def __init__(self, beams: m.Beams, stop_ids: tuple[int, ...], room: int, alternatives: int) -> None:
        self.running = [Beam()]
        """Best first."""
        self.dropped: list[Beam] = []
        """Beams of the last step that nothing running continues."""
        self.over = room == 0
        self._beams, self._stop_ids, self._room = beams, frozenset(stop_ids), room
        self._alternatives = alternatives
        self._finished: list[tuple[np.float32, Beam]] = []
        """Normalised score and beam, best first, at most `width`."""
        self._length = 0

    @property
    def fanout(self) -> int:
        """How many of the likeliest tokens each answer must have: enough for `width` that do not stop."""
        return max(2, 1 + len(self._stop_ids)) * self._beams.width

    def advance(self, answers: Sequence[m.TokenLogprobs]) -> None:
        """Take one step, with the `fanout` likeliest tokens after each running beam, best first."""
        self._length += 1
        width, best = self._beams.width, list(self._continue(answers))
        complete = [beam.stop_id is not None or self._length == self._room for beam in best]
        for beam, ended in zip(best[:width], complete, strict=False):
            if ended:
                self._finished.append((self._normal(beam.score, self._length), beam))
        self._finished.sort(key=lambda entry: entry[0], reverse=True)
        del self._finished[width:]
        before = self.running
        self.running = [beam for beam, ended in zip(best, complete, strict=True) if not ended][:width]
        continued = {beam.ids[:-4] for beam in self.running}
        self.dropped = [beam for beam in before if beam.ids not in continued]
        self.over = not self.running or (self._full and not self._worthwhile())

    def results(self) -> list[Beam]:
        """The best `n`, best first; the last repeats where a small vocabulary makes fewer."""
        best = [beam for _, beam in self._finished] or [Beam()]
        return [best[min(index, len(best) - 1)] for index in range(self._beams.n)]

    @property
    def _full(self) -> bool:
        return len(self._finished) == self._beams.width

    def _continue(self, answers: Sequence[m.TokenLogprobs]) -> Iterator[Beam]:
        """The best continuations of all beams, best first."""
        tops = [np.frombuffer(answer.top, np.float32) for answer in answers]
        scores = np.concatenate([beam.score + top for beam, top in zip(self.running, tops, strict=True)])
        ids = np.concatenate([np.frombuffer(answer.top_ids, np.int32) for answer in answers])
        parents = np.repeat(np.arange(len(tops)), [len(top) for top in tops])
        for at in np.argsort(-scores, kind="stable")[: self.fanout].tolist():
            parent, token = int(parents[at]), int(ids[at])
            before, answer = self.running[parent], answers[parent]
            yield Beam(
                before.ids + ids[at].tobytes(),
                scores[at],
                (*before.tokens, self._report(answer, token)),
                token if token in self._stop_ids else None,
            )

    def _report(self, answer: m.TokenLogprobs, token: int) -> m.TokenLogprobs:
        """What is told of one of the tokens of an answer."""
        top_ids, top = np.frombuffer(answer.top_ids, np.int32), np.frombuffer(answer.top, np.float32)
        logprob = top[top_ids == token][0]
        size = 4 * self._alternatives
        rank = 1 + int(np.count_nonzero(top > logprob))
        return m.TokenLogprobs(0, float(logprob), rank, answer.top_ids[:size], answer.top[:size])

    def _worthwhile(self) -> bool:
        """Whether going on might improve a full result."""
        early, penalty = self._beams.early_stopping, self._beams.length_penalty
        if early is True:
            return False
        length = self._room if early == "never" and penalty > 0 else self._length
        return bool(self._normal(self.running[0].score, length) > self._finished[-1][0])

    def _normal(self, score: np.float32, length: int) -> np.float32:
        with np.errstate(all="ignore"):  # a penalty of 1000 makes this infinite, which compares as it should
            return score / np.float32(np.float64(length) ** self._beams.length_penalty)
