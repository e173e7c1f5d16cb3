"""The order in which waiting sequences are admitted.

Classes by priority, the lowest first (`--schedule-policy fcfs` knows one class only). Within a class those go
first that ran before, as they hold what was shown already. Then, by policy, the longest known prefix (which
computes no token twice where requests share prefixes as a tree: arXiv:2312.07104, section 3) or the oldest.

Nobody starves: of those that came later, at most `Limits.max_overtakes` of the same class are admitted before
a request, and then it is its turn. Nobody is admitted past `head`. Sequences that are *held* are in nobody's
way: choices that wait for their leader's prompt, and requests that share a prefix with one that computes it.
These wait for two steps at most, in which more may pass; one whose turn it is is not held.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sized

from stretto.roles.scheduler.limits import Limits
from stretto.roles.scheduler.prefixes import Pending, Ranking, keys_of
from stretto.roles.scheduler.sequence import Sequence, Waiting

_DISK = 0
"""What parked sequences are filed under: no uid is 0."""


class Line:
    """Sequences of one priority. Operations take a binary search and the shift of a list of pointers."""

    def __init__(self, max_overtakes: int, ranking: Ranking | None) -> None:
        self._max_overtakes, self._ranking = max_overtakes, ranking
        self._again: list[Sequence] = []
        """Those that ran before, oldest first."""
        self._fresh: list[Sequence] = []
        """The others, oldest first."""
        self._admitted: list[int] = []
        """Ages of those that were admitted, ascending; of them somebody may wait who is older."""
        self._crowd = 2 * max_overtakes

    def __len__(self) -> int:
        return len(self._again) + len(self._fresh)

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._again
        yield from self._fresh

    @property
    def oldest_arrival(self) -> float:
        """Of those in it; there must be one."""
        return min(among[0].request.arrived for among in (self._again, self._fresh) if among)

    def add(self, sequence: Sequence) -> None:
        """A new sequence, or one that was retracted."""
        insort(self._list(sequence), sequence, key=_rank)
        if sequence.cached is None and self._ranking is not None:
            self._ranking.add(sequence)

    def remove(self, sequence: Sequence) -> bool:
        """Whether it was there."""
        among = self._list(sequence)
        index = bisect_left(among, _rank(sequence), key=_rank)
        if index == len(among) or among[index] is not sequence:
            return False
        del among[index]
        if sequence.cached is None and self._ranking is not None:
            self._ranking.remove(sequence)
        return True

    def head(self) -> Sequence:
        """The next one to admit; there must be one."""
        if self._again:
            return self._again[0]
        oldest = self._fresh[0]
        return oldest if self._ranking is None or self.due(oldest) else self._ranking.first()

    def learn(self, keys: list[int]) -> None:
        """The prefix tree has got a prompt."""
        if self._ranking is not None:
            self._ranking.learn(keys)

    # Ageing. Whoever is older was overtaken by more, so that the oldest is the first to be due.

    def admitted(self, sequence: Sequence, held: Callable[[], Iterator[Sequence]]) -> None:
        """A sequence has been admitted for the first time; `held` are those that will come back here."""
        insort(self._admitted, sequence.age)
        if len(self._admitted) > self._crowd:
            oldest = min((other.age for other in (*self._fresh, *held())), default=sequence.age)
            del self._admitted[: bisect_left(self._admitted, oldest)]
            self._crowd = 2 * (self._max_overtakes + len(self._admitted))

    def due(self, sequence: Sequence) -> bool:
        """Whether nobody who came later may be admitted before it any more."""
        return len(self._admitted) - bisect_right(self._admitted, sequence.age) >= self._max_overtakes

    def _list(self, sequence: Sequence) -> list[Sequence]:
        return self._fresh if sequence.cached is None else self._again


class Held:
    """Sequences that wait until another one, named by its uid, is released."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, Sequence]] = {}
        self._leaders: dict[int, int] = {}

    def add(self, sequence: Sequence, leader: int) -> None:
        self._waiting.setdefault(leader, {})[sequence.uid] = sequence
        self._leaders[sequence.uid] = leader

    def remove(self, sequence: Sequence) -> bool:
        """Whether it was there."""
        leader = self._leaders.pop(sequence.uid, None)
        if leader is None:
            return False
        peers = self._waiting[leader]
        del peers[sequence.uid]
        if not peers:
            del self._waiting[leader]
        return True

    def release(self, leader: int) -> list[Sequence]:
        """Those that need not wait any longer."""
        released = list(self._waiting.pop(leader, {}).values())
        for sequence in released:
            del self._leaders[sequence.uid]
        return released

    def pairs(self) -> Iterator[tuple[Sequence, int]]:
        """(sequence, leader)"""
        for leader, peers in self._waiting.items():
            yield from ((sequence, leader) for sequence in peers.values())

    def __len__(self) -> int:
        return len(self._leaders)


class Queue:
    """Everybody who waits. `known` tells how many tokens of a waiting sequence the prefix tree has."""

    def __init__(self, limits: Limits, known: Callable[[Sequence], int]) -> None:
        self._limits, self._known = limits, known
        self._lines: dict[int, Line] = {}
        """By priority."""
        self._choices, self._behind = Held(), Held()
        """By their leader; by the one that computes a prefix of theirs."""
        self._parked = Held()
        """Those that wait for the disk."""
        self._pending = Pending()
        self._needs: dict[int, int] = {}
        self.needed_tokens = 0
        """What those have to compute, and may need for their outputs, that wait for a prefix: room for them
        is kept, else somebody else would take it and drive the prefix out before they come."""

    def add(self, sequence: Sequence) -> None:
        """A new sequence, or one that was retracted."""
        if sequence.cached is None and self._limits.prefix_cache and not sequence.keys:
            request = sequence.request
            assert isinstance(sequence.state, Waiting)
            sequence.keys = keys_of(sequence.state.tokens, request.cache_salt, self._limits.grain)
        self._line(sequence).add(sequence)

    def hold(self, sequence: Sequence, leader: int) -> None:
        """A choice that is to wait until its leader is released."""
        self._choices.add(sequence, leader)

    def head(self) -> Sequence | None:
        """The next one to admit."""
        priority = min((priority for priority, line in self._lines.items() if line), default=None)
        return None if priority is None else self._lines[priority].head()

    def step_aside(self, head: Sequence) -> bool:
        """Hold the head where another one is computing a prefix of it, long enough to be worth the wait.

        That takes two steps at most: a sequence is admitted only where every prompt under way ends in the
        plan that is being made, or in the one before it.
        """
        longest = self._pending.longest(head) if head.cached is None and not head.unscored else None
        if longest is None or self._line(head).due(head):
            return False
        blocks, owner = longest
        if blocks * self._limits.grain - self._known(head) < self._limits.shared_tokens:
            return False
        self._line(head).remove(head)
        self._behind.add(head, owner.uid)
        self._needs[head.uid] = need = head.prompt_tokens - blocks * self._limits.grain + 1
        self.needed_tokens += need
        return True

    def park(self, head: Sequence) -> None:
        """The head waits for the disk, in nobody's way, until `unpark`."""
        self._line(head).remove(head)
        self._parked.add(head, _DISK)

    def unpark(self) -> None:
        """The disk has answered: whoever still waits for it is parked again when it comes up."""
        for sequence in self._parked.release(_DISK):
            self.add(sequence)

    def admit(self, head: Sequence) -> None:
        """The head has been admitted."""
        self.remove(head)
        if head.cached is None:
            self._line(head).admitted(head, lambda: (sequence for sequence, _ in self.held))
        if not head.published:
            self._pending.begin(head)

    def publish(self, sequence: Sequence) -> None:
        """The tree has its prompt: those held for it wait like anyone from now on."""
        for line in self._lines.values():
            line.learn(sequence.keys)
        self.release(sequence)

    def release(self, sequence: Sequence) -> None:
        """It has published its prompt, or will never do so."""
        self.interrupt(sequence)
        for follower in self._choices.release(sequence.uid):
            self.add(follower)

    def interrupt(self, sequence: Sequence) -> None:
        """It computes no prompt any more; its choices wait on, as it will come back."""
        self._pending.finish(sequence)
        for other in self._behind.release(sequence.uid):
            self._forget_need(other)
            self.add(other)

    def remove(self, sequence: Sequence) -> None:
        """It ended while it waited."""
        self._forget_need(sequence)
        if any(held.remove(sequence) for held in (self._choices, self._behind, self._parked)):
            return
        if not self._line(sequence).remove(sequence):
            raise AssertionError(f"request {sequence.uid} is not in the queue")

    def _forget_need(self, sequence: Sequence) -> None:
        self.needed_tokens -= self._needs.pop(sequence.uid, 0)

    @property
    def oldest_arrival(self) -> float | None:
        """When the first of those that are ready arrived, `time.monotonic()` seconds."""
        firsts = (line.oldest_arrival for line in self._lines.values() if line)
        return min(firsts, default=None)

    @property
    def held(self) -> Iterator[tuple[Sequence, int]]:
        """Sequences that wait for another one, and its uid."""
        yield from self._choices.pairs()
        yield from self._behind.pairs()

    def __iter__(self) -> Iterator[Sequence]:
        for priority in sorted(self._lines):
            yield from self._lines[priority]
        yield from (sequence for sequence, _ in [*self.held, *self._parked.pairs()])

    def __len__(self) -> int:
        parts: list[Sized] = [*self._lines.values(), self._choices, self._behind, self._parked]
        return sum(map(len, parts))

    def _line(self, sequence: Sequence) -> Line:
        priority = self._limits.priority_of(sequence.request)
        if priority not in self._lines:
            self._sweep()
            ranked = self._limits.policy == "prefix" and self._limits.prefix_cache
            ranking = Ranking(lambda waiting: self._known(waiting) // self._limits.grain) if ranked else None
            self._lines[priority] = Line(self._limits.max_overtakes, ranking)
        return self._lines[priority]

    def _sweep(self) -> None:
        """Drop lines in which nobody waits, so that clients cannot make ever more of them."""
        if not self._choices and not self._behind:
            self._lines = {priority: line for priority, line in self._lines.items() if line}


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.age, sequence.uid
