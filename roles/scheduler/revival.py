"""What becomes of live requests when a neighbour dies: nothing that a reader could see but a pause.

The detokenizers and the scheduler are each other's witness. All they say is named by uid and index of the
token, so that it may be said twice.
"""

from __future__ import annotations

from dataclasses import replace

from stretto.roles import messages as m
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.recall import scored
from stretto.roles.scheduler.requests import Requests
from stretto.roles.scheduler.searches import Search
from stretto.roles.scheduler.sequence import Sequence, Waiting


class Revival:
    """Brings requests back from what others lost."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    # The device is lost.

    def device(self, pages: int, below: Below, killed: bool) -> None:
        """Queue what was running again, for an empty device of so many pages; see `Core.restart`."""
        requests, batch = self._requests, self._requests.batch
        in_flight = {holder for slot, holder in batch.holders.items() if batch.computes_for(slot)}
        survivors = batch.abandon()
        known = [(sequence, len(batch.tokens_of(sequence))) for sequence in survivors]
        guilty = requests.suspects.judge(known, in_flight.intersection(survivors), killed)
        waiting = [*survivors, *requests.queue]
        requests.renew(replace(requests.limits, pages=pages, below=below))
        for sequence in waiting:
            sequence.published = False
        for sequence in waiting:
            requests.enqueue(sequence)
        for sequence in waiting:
            if requests.lives(sequence):
                self._recheck(sequence, sequence is guilty)

    def _recheck(self, sequence: Sequence, guilty: bool) -> None:
        """Fail what killed the device, or no longer fits."""
        requests, request = self._requests, sequence.request
        fault = POISON if guilty else requests.limits.refusal(sequence.prompt_tokens, request.max_tokens)
        sequence.limit = requests.limits.end_of(sequence.prompt_tokens, request.max_tokens)
        assert isinstance(sequence.state, Waiting)
        if fault is not None:
            requests.fail(sequence, fault)
        elif len(sequence.state.tokens) >= max(sequence.limit, sequence.prompt_tokens + 1):
            requests.end(sequence, m.End(sequence.uid, "length", cached_tokens=sequence.cached or 0))

    # A detokenizer is lost.

    def detokenizer(self, index: int) -> None:
        """Tell its successor all that it knew; compute again what cannot be told again."""
        requests = self._requests
        requests.outbox.forget_tokens(index)
        for search in list(requests.searches):
            self._tell_search(search, [uid for uid in search.choices if requests.reader(uid) == index])
        for uid, sequence in list(requests.live.items()):
            if uid >= 0 and requests.reader(uid) == index:
                self._tell(sequence)

    def _tell(self, sequence: Sequence) -> None:
        requests = self._requests
        output = requests.batch.tokens_of(sequence)[sequence.prompt_tokens :]
        if scored(sequence.request) and (len(output) or sequence.scored > 1):
            output = output[:0]
            requests.restart(sequence)
        requests.announce(sequence.request, sequence.uid, output)
        if len(output):
            requests.outbox.hit(sequence.uid, sequence.cached or 0)

    def _tell_search(self, search: Search, choices: list[int]) -> None:
        request = search.request
        if request.uid in choices and request.sampling.prompt_logprobs is not None:
            self._requests.restart_search(search)
        for uid in choices:
            self._requests.announce(request, uid)


POISON = m.Fault(
    500,
    "The executor died whenever it computed this request, also when it computed nothing else, so the request "
    "is not tried again.",
    type="server_error",
    code="poison_request",
)
