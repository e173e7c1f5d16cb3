"""What is known to lie below the device, and the moves between the tiers.

Below the radix tree, which is exact to the token, whole pages are found by their keys (`keys`): a page that
left the device needs no node any more, and the same key names it in host memory and in the file store.

The scheduler decides and the executor moves (`messages.Move`). A move between device and host counts as done
as soon as it is asked for, because the executor does such moves in order and a plan names the last one that
it depends on. Only the disk is waited for (`tiers_disk`).
The design follows HiCache (https://lmsys.org/blog/2025-09-10-sglang-hicache/).
"""

from __future__ import annotations

from collections.abc import Sequence

from stretto.roles import messages as m
from stretto.roles.scheduler.below import Below
from stretto.roles.scheduler.moves import Moves
from stretto.roles.scheduler.pages import Ints
from stretto.roles.scheduler.tiers_counts import TierCounts
from stretto.roles.scheduler.tiers_disk import Disk
from stretto.roles.scheduler.tiers_host import HostPages


class Tiers:
    """Host memory and the file store of one executor; everything here is void when it dies."""

    def __init__(self, below: Below) -> None:
        self.below = below
        self._host = HostPages(below.host_pages, self._dropped)
        self._moves = Moves()
        self._disk = Disk(below, self._host, self._moves)
        self._leaving: dict[int, int] = {}
        """Device pages with the number of the last move that reads them."""
        self._after = 0
        self._counts = TierCounts()

    @property
    def enabled(self) -> bool:
        """Whether there is anything below the device."""
        return self.below.host_pages > 0

    @property
    def busy(self) -> bool:
        """Whether pages are on their way from the disk."""
        return bool(self._disk.loading)

    @property
    def unsaved(self) -> int:
        """Pages that are on the host, wanted on the disk and not known to be there."""
        return self._disk.unsaved

    @property
    def sizes(self) -> tuple[int, int]:
        """Pages that (the host, the file store) hold."""
        return len(self._host), len(self._disk)

    @property
    def counts(self) -> TierCounts:
        """What happened since the last `take_counts`."""
        self._counts.host_evicted_pages += self._host.evicted
        self._host.evicted = 0
        return self._counts

    def take_counts(self) -> TierCounts:
        """What happened since the last call."""
        counts, self._counts = self.counts, TierCounts()
        return counts

    # What a sequence can get from here. `keys` are those of its pages from its first one on.

    def run(self, keys: Sequence[bytes], first: int, end: int) -> int:
        """How many of the pages [first, end) in a row are on the host and worth a copy."""
        if not self.below.copy_pays:
            return 0
        at = first
        while at < end and keys[at] in self._host:
            at += 1
        return at - first

    def awaited(self, keys: Sequence[bytes], first: int, end: int) -> bool:
        """Whether the first page in [first, end) that is not on the host is on its way there."""
        at = first + self.run(keys, first, end)
        return at < end and keys[at] in self._disk.loading

    def prefetch(self, keys: Sequence[bytes], first: int, end: int) -> None:
        """Begin to load those of the pages [first, end) in a row that only the disk has."""
        self._disk.prefetch(keys[first:end])

    def read_for(self, keys: Sequence[bytes]) -> int:
        """For how many of these, all on the host, the disk was read and nobody has used them since."""
        return self._disk.fresh(keys)

    # Between device and host.

    def claim(self, keys: Sequence[bytes]) -> None:
        """Keep these until `promote`."""
        self._host.hold(keys)

    def promote(self, keys: Sequence[bytes], device: Ints) -> None:
        """Copy the claimed pages of `keys` to these device pages before the next plan computes."""
        self._host.let_go(keys)
        if not keys:
            return
        self._after = self._moves.add("in", [self._host[key] for key in keys], device)
        from_disk = self._disk.fresh(keys)
        self._disk.use(keys)
        self._counts.promoted_pages += len(keys)
        self._counts.disk_hit_pages += from_disk
        self._counts.host_hit_pages += len(keys) - from_disk

    def touch(self, keys: Sequence[bytes]) -> None:
        """These have been used, wherever they are."""
        self._host.touch(keys)

    def demote(self, keys: Sequence[bytes], device: Ints) -> int:
        """Copy whole device pages to the host where it does not have them; returns how many."""
        if not self.enabled:
            return 0
        self.touch(keys)
        loading = self._disk.loading
        fresh = [at for at, key in enumerate(keys) if key not in self._host and key not in loading]
        pages = self._host.take(min(len(fresh), self._host.count))
        fresh = fresh[: len(pages)]
        if fresh:
            number = self._moves.add("out", pages, device[fresh])
            self._leaving.update(dict.fromkeys(device[fresh].tolist(), number))
            for at, page in zip(reversed(fresh), reversed(pages), strict=True):
                self._host.put(keys[at], page)
                self._disk.offer(keys[at])
            self._counts.demoted_pages += len(fresh)
        return len(fresh)

    def swap(self, keys: Sequence[bytes], device: Ints) -> None:
        """Copy the pages of a retracted sequence to the host, where it does not have them."""
        self._counts.swapped_pages += self.demote(keys, device)

    def reuse(self, device: Ints) -> None:
        """These device pages are about to be overwritten, by the next plan or by a promotion."""
        if self._leaving:
            last = max((self._leaving.pop(page, 0) for page in device.tolist()), default=0)
            self._after = max(self._after, last)

    def take_after(self) -> int:
        """The move that the plan now made must wait for, 0 for none."""
        after, self._after = self._after, 0
        return after

    def _dropped(self, key: bytes) -> None:
        self._disk.forget(key)

    def flush(self) -> None:
        """Give up all that is on the host, but what the disk is writing, and know nothing of the disk.

        Its files stay: the next executor tells of them again.
        """
        self._host.clear()
        self._disk.clear()

    def hurry(self) -> None:
        """Save to disk all that the host has, what was used last first: the server stops."""
        self._disk.hurry()

    # Messages.

    def take_moves(self) -> list[m.Move]:
        """What to send since the last call, before the next plan."""
        self._disk.save()
        return self._moves.take()

    def moved(self, answer: m.Moved) -> bool:
        """A move is over; whether it was a load. Raises RuntimeError for one that was never asked for."""
        if not 0 < answer.number <= self._moves.number:
            raise RuntimeError(
                f"the executor answers move {answer.number}, the last one was {self._moves.number}"
            )
        kind = self._disk.answered(answer)
        if kind is None:
            self._leaving = {page: n for page, n in self._leaving.items() if n > answer.number}
        return kind == "load"

    def shelved(self, news: m.Shelved) -> None:
        """What the file store has gained and lost."""
        self._disk.shelved(news)

    def check(self) -> None:
        """Verify the invariants while nothing is claimed; raises AssertionError."""
        self._host.check(*self._disk.check())
