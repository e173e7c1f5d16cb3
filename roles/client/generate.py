"""One answer to standard output, for shell pipes."""

from __future__ import annotations

import os
import sys
from typing import Any

from stretto.roles.client.address import DEFAULT_URL
from stretto.roles.client.client import Client
from stretto.roles.client.errors import StrettoError
from stretto.roles.client.terminal import Screen

INTERRUPTED = 130
"""Exit code of a program that Ctrl-C ended, by the shells' convention."""


def generate(
    prompt: str,
    url: str = DEFAULT_URL,
    *,
    uds: str | None = None,
    api_key: str | None = None,
    system: str | None = None,
    raw: bool = False,
    screen: Screen | None = None,
    **fields: Any,
) -> int:
    """Print the answer to `prompt` as it comes; returns the exit code, 1 with a message if it fails.

    Args:
        prompt: the question.
        url, uds, api_key: where the server is.
        system: the system message.
        raw: continue `prompt` as it is, without the model's chat template.
        screen: output; standard output and error by default.
        fields: other fields of the request, e.g. `temperature`, `max_tokens`.
    """
    screen = screen or Screen()
    request = {"prompt": prompt} if raw else {"messages": _messages(prompt, system)}
    try:
        with Client(url, api_key, uds=uds) as client:
            for delta in client.stream(**request, **fields):
                screen.write(delta.text)
        screen.write("\n")
    except StrettoError as error:
        screen.note(f"error: {error}")
        return 1
    except BrokenPipeError:  # the next command of the pipe has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it at exit
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _messages(text: str, system: str | None) -> list[dict[str, str]]:
    opening = [{"role": "system", "content": system}] if system else []
    return [*opening, {"role": "user", "content": text}]
