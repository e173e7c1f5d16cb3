"""Stop strings: found as soon as they are there, never shown in part.

The text is searched after every token. The first token that completes a stop string ends the output; of the
stop strings it completes, the one that begins first in the text counts, and of those that begin together the
longest. Text that may be the beginning of a stop string is held back until the next tokens decide.
"""

from __future__ import annotations


class StopStrings:
    """Watches one text for the given strings (not empty)."""

    __slots__ = ("_held", "_include", "_stops")

    def __init__(self, stops: tuple[str, ...], include: bool) -> None:
        """`include`: the text that is shown ends with the stop string rather than before it."""
        self._stops = stops
        self._include = include
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """`(shown, stop)`: text that may be shown, and the stop string that ends it, if one does."""
        if not text:
            return "", None
        old, text = len(self._held), self._held + text
        if True in [stop in text for stop in self._stops]:  # at every token: a generator would cost more
            found = self._find(text, old)
            if found is not None:
                at, _, stop = found
                self._held = ""
                return text[: at + len(stop) if self._include else at], stop
        return self._hold(text), None

    def _find(self, text: str, old: int) -> tuple[int, int, str] | None:
        """(start, -length, stop) of the one that counts; what ends in the first `old` characters is past."""
        starts = [(text.find(stop, max(0, old - len(stop) + 1)), -len(stop), stop) for stop in self._stops]
        return min((start for start in starts if start[0] >= 0), default=None)

    def skip(self, text: str) -> str:
        """`push` for text that may begin a stop string, but may not complete one."""
        return self._hold(self._held + text)

    def _hold(self, text: str) -> str:
        keep = min([_begins(text, stop) for stop in self._stops])
        self._held = text[keep:]
        return text[:keep]

    def finish(self) -> str:
        """What was held back, now that no stop string can follow."""
        held, self._held = self._held, ""
        return held


def _begins(text: str, stop: str) -> int:
    """Where the longest end of `text` that begins `stop` starts; `len(text)` where none does."""
    at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while at >= 0:
        if stop.startswith(text[at:]):
            return at
        at = text.find(stop[0], at + 1)
    return len(text)
