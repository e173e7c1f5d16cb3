"""The scheduler without its process: requests in, plans out, results in, tokens out.

Sans-I/O and deterministic: no clock, no randomness, no transport. The executor runs plans in order; up to two
are in flight, so a plan is made before the tokens of the one before it are known:

* a decode row is planned for a token that is still on the device;
* a length limit is known ahead and never wastes a row; a stop id is learnt when one more row is in flight
  already, and that row's token is dropped: not shown, not counted, not cached;
* slots and pages go to others only when the last step that touches them has reported;
* the choices of one request share its prompt: they wait until the first, their leader, has computed it.

Steady decode is arithmetic on the columns of `table.Table`; Python touches only sequences that change state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler import audit, summary
from stretto.roles.scheduler.below import NOTHING_BELOW, Below
from stretto.roles.scheduler.counts import Counts
from stretto.roles.scheduler.digest import Digest
from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.recall import untold
from stretto.roles.scheduler.requests import Requests
from stretto.roles.scheduler.revival import Revival
from stretto.roles.scheduler.stalls import Stalls, stalled
from stretto.roles.scheduler.step import Flight
from stretto.roles.scheduler.tiers import Tiers


class Core:
    """Schedules requests over the slots and KV pages of one executor.

    Call `next_plan` until it returns None, hand the plans over in order, and each result to `advance`; pass
    on what `take` returns. A `uid` that is submitted again while it lives is ignored: it is the same request,
    repeated, and its stream goes on. Every other submitted uid, and each choice of a beam search, gets one
    `Open`, then its tokens, then one `End`, unless `stop` silences it.
    """

    def __init__(self, limits: Limits) -> None:
        self._requests = Requests(limits)
        self._digest = Digest(self._requests)
        self._revival = Revival(self._requests)
        self._stalls = Stalls()
        self._cold = True

    # What a caller may ask.

    @property
    def limits(self) -> Limits:
        """What the core lives within; `pages` changes with the device."""
        return self._requests.limits

    @property
    def busy(self) -> bool:
        """Whether any request lives or any step is in flight."""
        return bool(self._requests.live or self._requests.batch.flights)

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._requests.queue)

    @property
    def running(self) -> int:
        """Sequences that hold a slot."""
        return len(self._requests.batch.holders)

    @property
    def pages(self) -> tuple[int, int, int]:
        """KV pages that are (free, cached, owned)."""
        pool = self._requests.batch.memory.pool
        return pool.free, pool.cached, pool.owned

    @property
    def held_tokens(self) -> int:
        """Positions of running sequences that steps have filled or are about to."""
        return int(self._requests.batch.table.length.sum())

    @property
    def new_token_ratio(self) -> float:
        """Share of its possible output that admission expects of a running sequence."""
        return self._requests.batch.ratio.value

    @property
    def oldest_arrival(self) -> float | None:
        """When the one that has waited longest in the queue arrived, `time.monotonic()` seconds."""
        return self._requests.queue.oldest_arrival

    def summarize_cache(self) -> m.CacheSummary:
        """What the prefix tree holds."""
        return summary.summarize(self._requests.batch.memory)

    @property
    def tiers(self) -> Tiers:
        """What lies below the device; to be read."""
        return self._requests.batch.memory.tiers

    @property
    def next_deadline(self) -> float | None:
        """When to call `expire`, `time.monotonic()` seconds; None while nothing has a deadline."""
        return self._requests.deadlines.next

    def take_counts(self) -> Counts:
        """What happened since the last call."""
        memory = self._requests.batch.memory
        self._requests.counts.evicted_pages, memory.evicted_pages = memory.evicted_pages, 0
        counts, self._requests.counts = self._requests.counts, Counts()
        return counts

    # What a caller may do.

    def submit(self, requests: Iterable[m.Request]) -> None:
        """Queue requests; one that can never fit ends at once."""
        for request in requests:
            self._requests.submit(untold(request))

    def abort(self, uids: Iterable[int]) -> None:
        """End requests wherever they are, with `End`; uids that do not live are ignored."""
        for uid in uids:
            self._requests.cut(uid, "abort")
        self._settle()

    def stop(self, uids: Iterable[int]) -> None:
        """Like `abort`, but silent: whoever reads these streams has ended them already."""
        for uid in uids:
            self._requests.cut(uid, None)
        self._settle()

    def flush_cache(self) -> int:
        """Drop what the prefix tree has and nobody uses; returns how many tokens that were."""
        return summary.flush(self._requests.batch.memory)

    def hurry(self) -> None:
        """Begin to write to disk what only memory holds, for the server stops; `tiers.unsaved` tells how much
        is left. Moves follow one another as they are answered: see `take_moves`.
        """
        self._requests.batch.memory.hurry()

    def expire(self, now: float) -> None:
        """Fail every request whose deadline has come, wherever it is."""
        for uid in self._requests.deadlines.due(now):
            self._requests.expire(uid)
        self._settle()

    def recall(self, request: m.Request, choices: Sequence[int]) -> None:
        """Go on with a request of a scheduler that died, after the tokens in `generated`.

        `choices`: those of its uids that live. Whoever keeps log-probabilities has those of these tokens.
        """
        self._requests.submit(request, choices)
        self._settle()

    def retell(self, detokenizer: int) -> None:
        """A detokenizer died: tell its successor what lives, and all tokens so far.

        Log-probabilities are not kept: requests that want them are computed again from the beginning.
        """
        self._revival.detokenizer(detokenizer)
        self._settle()

    def fail_stalled(self, now: float, seconds: float) -> None:
        """Fail requests that run and have gained nothing for so many seconds although steps reported.

        Exact to the time between two calls.
        """
        for sequence in self._stalls.look(self._requests.batch, now, seconds):
            self._requests.fail(sequence, stalled(seconds))
        self._settle()

    def next_plan(self) -> m.Plan | None:
        """The next step, None when there is nothing to compute or enough is in flight."""
        batch = self._requests.batch
        if len(batch.flights) >= (2 if self.limits.overlap else 1):
            return None
        draft = batch.draft()
        self._requests.admit(draft)
        if not draft:
            return None
        plan = draft.plan(self._cold, batch.memory.tiers.take_after())
        self._cold = False
        batch.launch(draft)
        return plan

    def take_moves(self) -> list[m.Move]:
        """What is to be moved between the tiers: to be sent before the plan that was made last."""
        return self._requests.batch.memory.tiers.take_moves()

    def moved(self, answer: m.Moved) -> None:
        """Digest the outcome of a move."""
        if self._requests.batch.memory.tiers.moved(answer):
            self._requests.queue.unpark()

    def shelved(self, news: m.Shelved) -> None:
        """Learn what the file store has gained and lost; what waits begins to load what it can use."""
        self._requests.batch.memory.tiers.shelved(news)
        if news.added:
            for sequence in self._requests.queue:
                self._requests.batch.prefetch(sequence)

    def advance(self, result: m.Result) -> None:
        """Digest the outcome of the oldest plan in flight."""
        batch, tokens = self._requests.batch, np.frombuffer(result.tokens, np.int32)
        if not batch.flights or not _answers(result, len(tokens), batch.flights[0]):
            steps = [flight.number for flight in batch.flights]
            raise RuntimeError(
                f"result of step {result.step}, {len(tokens)} tokens, {len(result.prompt_logprobs)} scored "
                f"chunks, does not answer the first of {steps}"
            )
        flight = batch.land()
        self._digest.score(flight, result.prompt_logprobs)
        self._digest.finish_prompts(flight)
        self._digest.accept(flight, tokens, result.logprobs)
        batch.free(flight)
        self._requests.release_followers(flight)
        self._settle()

    def restart(self, pages: int, below: Below = NOTHING_BELOW, killed: bool = False) -> None:
        """Go on with an empty device of so many pages and with what lies below it; steps and moves count from
        1 again.

        Running sequences are queued again with what they have generated, so that their streams go on with
        the tokens they would have had. One that is found guilty of killing the device (`suspects`) ends with
        an error, and so do those that no longer fit. A device that was `killed` says less about who did it.
        """
        self._revival.device(pages, below, killed)
        self._cold = True
        self._settle()

    def take(self) -> list[tuple[int, m.Tokens]]:
        """(detokenizer, message) pairs since the last call, in the order in which they are to be sent."""
        return self._requests.outbox.take()

    def check(self) -> None:
        """Verify every invariant; raises AssertionError that says which one is broken."""
        requests = self._requests
        audit.check_states(requests.live, requests.queue, requests.batch.holders)
        audit.check_followers(requests.live, requests.queue.held)
        audit.check_searches(requests.live, requests.searches)
        requests.batch.check()

    def _settle(self) -> None:
        """Take beam searches further, and notice that the device has run out of work."""
        self._requests.carry_on()
        if not self.busy:
            self._cold = True
            self._requests.batch.table.narrow_stops()


def _answers(result: m.Result, tokens: int, flight: Flight) -> bool:
    scored = {part.chunk for part in result.prompt_logprobs}
    return result.step == flight.number and tokens == len(flight.sampling) and scored == flight.scored.keys()
