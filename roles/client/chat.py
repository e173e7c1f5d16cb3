"""A chat in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from stretto.roles.client.address import DEFAULT_URL, NOTHING_LISTENS, listens, parse
from stretto.roles.client.client import Client
from stretto.roles.client.errors import StrettoError
from stretto.roles.client.stopwatch import Stopwatch
from stretto.roles.client.terminal import Screen

HELP = "/reset forgets the conversation, /quit or Ctrl-D leaves, Ctrl-C stops an answer."
PROMPT = "> "

Read = Callable[[str], str]
"""Like `input`: shows a prompt, returns a line, raises `EOFError` at the end."""


def chat(
    url: str = DEFAULT_URL,
    *,
    uds: str | None = None,
    api_key: str | None = None,
    system: str | None = None,
    read: Read | None = None,
    screen: Screen | None = None,
    **fields: Any,
) -> int:
    """Talk with the model until the user leaves; returns the exit code, 1 if the server could not be reached.

    Args:
        url, uds, api_key: where the server is.
        system: the system message.
        read, screen: input and output; standard input and output by default.
        fields: of `/v1/chat/completions`, e.g. `temperature`, `max_tokens`.
    """
    screen = screen or Screen()
    if not listens(where := parse(url, uds)):
        screen.note(NOTHING_LISTENS.format(where))
        return 1
    with Client(url, api_key, uds=uds) as client:
        return Chat(client, screen, system, fields).run(read or _input())


class Chat:
    """One conversation; what the model said is part of the next request."""

    def __init__(self, client: Client, screen: Screen, system: str | None, fields: dict[str, Any]) -> None:
        self._client = client
        self._screen = screen
        self._opening = [{"role": "system", "content": system}] if system else []
        self._fields = fields
        self.messages = list(self._opening)

    def run(self, read: Read) -> int:
        """Read and obey lines to the end; returns the exit code."""
        if self._screen.is_terminal:
            self._screen.note(HELP)
        while (line := self._read(read)) not in (None, "/quit"):
            if line == "/reset":
                self.messages = list(self._opening)
            elif line.startswith("/"):
                self._screen.note(HELP)
            elif line:
                self._answer(line)
        return 0

    def _read(self, read: Read) -> str | None:
        """The next line; None at the end."""
        try:
            return read(PROMPT if self._screen.is_terminal else "").strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            self._screen.note("")
            return "/help"

    def _answer(self, line: str) -> None:
        """Ask, and show the answer; a question that fails is no part of the conversation."""
        asked = [*self.messages, {"role": "user", "content": line}]
        try:
            text = self._stream(asked)
        except StrettoError as error:
            self._screen.note(f"error: {error}")
        else:
            self.messages = [*asked, {"role": "assistant", "content": text}]

    def _stream(self, messages: list[dict[str, Any]]) -> str:
        """Show an answer as it comes; Ctrl-C ends it early. Returns what there is of it."""
        shown: list[str] = []
        watch = Stopwatch()
        stream = self._client.stream(messages=messages, **self._fields)
        try:
            for delta in stream:
                watch.tick()
                shown.append(delta.text)
                self._screen.write(delta.text)
        except KeyboardInterrupt:  # leaving the loop has cancelled the request; a second one leaves the chat
            self._screen.write(" ...")
        finally:
            self._screen.write("\n")
        self._screen.note(watch.report(stream.result()))
        return "".join(shown)


def _input() -> Read:
    with suppress(ImportError):  # gives `input` editing and a history, where there is one
        import readline  # noqa: F401
    return input
