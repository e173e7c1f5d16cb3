"""Pages of host memory by their keys, given away in the order of their last use."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence


class HostPages:
    """Knows which page holds what. `dropped` is called with each key that goes to make room."""

    def __init__(self, count: int, dropped: Callable[[bytes], None]) -> None:
        self.count, self._dropped = count, dropped
        self._pages: OrderedDict[bytes, int] = OrderedDict()
        """The one used longest ago first."""
        self._free = list(range(count - 1, -1, -1))
        self._held = Counter[bytes]()
        """By key: how many want it to stay."""
        self.evicted = 0
        """Pages given to others; whoever counts them sets it to 0."""

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, key: bytes) -> bool:
        return key in self._pages

    def __getitem__(self, key: bytes) -> int:
        return self._pages[key]

    @property
    def free(self) -> int:
        """Pages that hold nothing and are not being filled."""
        return len(self._free)

    def newest(self) -> Iterator[bytes]:
        """Keys, the one used last first."""
        return reversed(self._pages)

    def touch(self, keys: Sequence[bytes]) -> None:
        """These have been used. Of one sequence the first page is kept longest: without it the later ones
        are of no use."""
        for key in reversed(keys):
            if key in self._pages:
                self._pages.move_to_end(key)

    def hold(self, keys: Iterable[bytes]) -> None:
        """Keep these until `let_go`."""
        self._held.update(keys)

    def let_go(self, keys: Iterable[bytes]) -> None:
        """Undo one `hold`."""
        for key in keys:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]

    def take(self, count: int) -> list[int]:
        """Pages to be filled: at most so many, free ones first, then those used longest ago."""
        pages = [self._free.pop() for _ in range(min(count, len(self._free)))]
        if len(pages) < count:
            oldest = [key for key, _ in zip(self._pages, range(count + len(self._held)), strict=False)]
            for key in [key for key in oldest if key not in self._held][: count - len(pages)]:
                pages.append(self._drop(key))
                self.evicted += 1
        return pages

    def put(self, key: bytes, page: int) -> None:
        """A page that was taken holds this now, or will before anybody reads it."""
        self._pages[key] = page

    def give_back(self, page: int) -> None:
        """A page that was taken was not filled."""
        self._free.append(page)

    def clear(self) -> None:
        """Give up all that is not held."""
        for key in [key for key in self._pages if key not in self._held]:
            self._free.append(self._drop(key))

    def _drop(self, key: bytes) -> int:
        self._dropped(key)
        return self._pages.pop(key)

    def check(self, filling: Iterable[int], held: Counter[bytes]) -> None:
        """Verify the invariants, given the pages that are being filled and what is held; raises
        AssertionError."""
        pages = sorted([*self._free, *self._pages.values(), *filling])
        if pages != list(range(self.count)):
            raise AssertionError(f"host pages are lost or twice there: {pages}")
        if self._held != held:
            raise AssertionError(f"{self._held} are held on the host, and should be {held}")
        if lost := held.keys() - self._pages.keys():
            raise AssertionError(f"{len(lost)} pages are held and not on the host")
