"""What the result of a step means for the sequences in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stretto.roles import messages as m
from stretto.roles.scheduler import scores
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.requests import Requests
from stretto.roles.scheduler.sequence import Decode, Retiring, Running, Sequence
from stretto.roles.scheduler.step import Flight
from stretto.roles.scheduler.table import Slots


class Digest:
    """Hands out what steps bring, and ends what is complete."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def score(self, flight: Flight, parts: list[m.ChunkLogprobs]) -> None:
        """Pass on log-probabilities of prompts."""
        for part in parts:
            sequence, first = flight.scored[part.chunk]
            if not self._requests.lives(sequence):
                continue
            if np.isnan(np.frombuffer(part.logprobs, np.float32)).any():
                self._fail(sequence)
            elif (news := scores.of_prompt(sequence.uid, sequence.scored, first, part)) is not None:
                sequence.scored += len(news.logprobs) // 4
                self._requests.tell_prompt(news)

    def finish_prompts(self, flight: Flight) -> None:
        """Announce the first tokens, which come next; end what is to have none."""
        requests = self._requests
        for sequence, goal in flight.prefilled:
            if goal == sequence.prompt_tokens and requests.lives(sequence):
                if goal == sequence.limit:
                    self._finish(sequence, None)
                elif sequence.uid >= 0:
                    requests.outbox.hit(sequence.uid, sequence.cached or 0)

    def accept(self, flight: Flight, tokens: Ints, logprobs: list[m.RowLogprobs]) -> None:
        """Append each token to its sequence; end those that are complete."""
        table, holders = self._requests.batch.table, self._requests.batch.holders
        slots = flight.sampling
        wanted = table.live[slots]
        if not wanted.all():
            slots, tokens = slots[wanted], tokens[wanted]
        if len(tokens) and tokens.min() < 0:
            slots, tokens = self._fail_rows(slots, tokens)
        if not len(tokens):
            return
        told = scores.of_tokens(logprobs, flight.sampling, slots, table.uid) if logprobs else []
        indices, patient = table.append_tokens(slots, tokens), bool(table.patient[slots].all())
        self._requests.tell_tokens(table.uid[slots], tokens, indices, told, patient)
        if self._requests.suspects:
            for slot in slots.tolist():
                self._requests.clear(holders[slot], int(table.known[slot]))
        stopped = table.stopped(slots, tokens)
        ended = stopped | (table.known[slots] >= table.limit[slots])
        for row in np.flatnonzero(ended).tolist():
            self._finish(holders[int(slots[row])], int(tokens[row]) if stopped[row] else None)

    def _fail_rows(self, slots: Slots, tokens: Ints) -> tuple[Slots, Ints]:
        """End sequences whose logits were not numbers; returns the other rows."""
        bad: npt.NDArray[np.bool_] = tokens < 0
        for slot in slots[bad].tolist():
            self._fail(self._requests.batch.holders[slot])
        return slots[~bad], tokens[~bad]

    def _fail(self, sequence: Sequence) -> None:
        assert isinstance(sequence.state, Running)
        self._requests.batch.table.known[sequence.state.slot] = 0  # nobody may reuse KV that made this
        text = "The model's output was not a number (NaN) for this request, so it cannot go on."
        self._requests.fail(sequence, m.Fault(500, text, type="server_error", code="nan_logits"))

    def _finish(self, sequence: Sequence, stop_id: int | None) -> None:
        cached, requests = sequence.cached or 0, self._requests
        if stop_id is None:
            requests.end(sequence, m.End(sequence.uid, "length", cached_tokens=cached))
            return
        state = sequence.state
        assert isinstance(state, Decode | Retiring)
        requests.counts.wasted_tokens += requests.batch.computes_for(state.slot)
        silent = stop_id in sequence.request.silent_stop_ids
        requests.end(sequence, m.End(sequence.uid, "stop", stop_id, silent, cached))
