"""The error output of a child process: copied to ours as it comes, and its last lines kept."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import IO, TextIO

TAIL_LINES = 30
"""How much of it an error quotes."""
JOIN_SECONDS = 5.0


class Tail:
    """Reads the pipe to its end on a thread, so that the child never blocks on it."""

    def __init__(self, pipe: IO[bytes], echo: TextIO | None) -> None:
        self._pipe = pipe
        self._echo = echo
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._thread = threading.Thread(target=self._copy, name="stretto-stderr", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """The last lines."""
        return "".join(self._lines.copy()).rstrip()

    def join(self) -> None:
        """Wait for the end of the output; not for ever, since a grandchild could hold it open."""
        self._thread.join(JOIN_SECONDS)

    def _copy(self) -> None:
        with self._pipe:
            for data in self._pipe:
                line = data.decode(errors="replace")
                self._lines.append(line)
                if self._echo is not None:
                    with suppress(OSError, ValueError):  # ours was closed; the child's must still be emptied
                        self._echo.write(line)
                        self._echo.flush()
