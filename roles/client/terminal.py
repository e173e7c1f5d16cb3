"""Writing a model's words to a terminal: as they come, and so that they stay words."""

from __future__ import annotations

import sys
from typing import TextIO

_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_DIM, _RESET = "\x1b[2m", "\x1b[0m"


class Screen:
    """Output of a conversation: answers on `out`; notes, dim on a terminal, on `err`."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self.is_terminal = self._out.isatty()

    def write(self, text: str) -> None:
        """Text of an answer, at once; on a terminal without control characters, which could drive it."""
        self._out.write(text.translate(_CONTROLS) if self.is_terminal else text)
        self._out.flush()

    def note(self, text: str) -> None:
        """A line that is not part of an answer."""
        self._err.write(f"{_DIM}{text}{_RESET}\n" if self._err.isatty() else f"{text}\n")
        self._err.flush()
