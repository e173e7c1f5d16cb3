"""What the scheduler counts for its metrics."""

from __future__ import annotations

from dataclasses import dataclass


class Tally:
    """A dataclass with slots whose fields are counts."""

    __slots__: tuple[str, ...] = ()

    def by_metric(self) -> list[tuple[str, int]]:
        """The counts that are not 0, under their names in `roles.metrics`."""
        named = ((f"{name}_total", getattr(self, name)) for name in self.__slots__)
        return [(name, count) for name, count in named if count]


@dataclass(slots=True)
class Counts(Tally):
    """What happened since somebody looked. A prompt is counted once, whatever shares it."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    host_cached_tokens: int = 0
    """Of those, from host memory alone."""
    disk_cached_tokens: int = 0
    """Of those, for which the disk had to be read."""
    generated_tokens: int = 0
    wasted_tokens: int = 0
    """Computed after a stop id that was learnt a step late."""
    retractions: int = 0
    evicted_pages: int = 0
