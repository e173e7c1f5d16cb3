"""The terminal chat, with lines and a screen made of strings."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stretto.roles.client.chat import chat
from stretto.roles.client.terminal import Screen


def reader(*lines: str | type[BaseException]) -> Callable[[str], str]:
    """Like `input`; at the end of the lines, like `input` at the end of the file."""
    remaining: Iterator[str | type[BaseException]] = iter(lines)

    def read(prompt: str) -> str:
        line = next(remaining, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read


@pytest.fixture
def screen() -> Screen:
    return Screen(io.StringIO(), io.StringIO())


def said(screen: Screen) -> str:
    assert isinstance(screen._out, io.StringIO)
    return screen._out.getvalue()


def noted(screen: Screen) -> str:
    assert isinstance(screen._err, io.StringIO)
    return screen._err.getvalue()


def test_answers_are_shown_with_their_speed(server: Any, uds: str, screen: Screen) -> None:
    assert chat(uds=uds, read=reader("say he llo"), screen=screen) == 0
    assert said(screen) == "hello\n"
    assert noted(screen).startswith("2 tokens · ")
    assert "first after" in noted(screen)


def test_the_conversation_is_kept_until_it_is_reset(server: Any, uds: str, screen: Screen) -> None:
    lines = reader("say a", "say b", "/reset", "say c", "/quit", "say d")
    chat(uds=uds, system="Be brief.", read=lines, screen=screen, max_tokens=5)
    requests = [server.hear("generate")["request"] for _ in range(3)]
    assert [[turn["content"] for turn in request["messages"]] for request in requests] == [
        ["Be brief.", "say a"],
        ["Be brief.", "say a", "a", "say b"],
        ["Be brief.", "say c"],
    ]
    assert requests[0]["max_tokens"] == 5
    assert said(screen) == "a\nb\nc\n"


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(server: Any, uds: str) -> None:
    class Impatient(io.StringIO):
        def write(self, text: str) -> int:
            written = super().write(text)
            if text == "half":
                raise KeyboardInterrupt
            return written

    screen = Screen(Impatient(), io.StringIO())
    assert chat(uds=uds, read=reader("hang half", "say on"), screen=screen) == 0
    assert said(screen) == "half ...\non\n"
    assert "stopped" in noted(screen)
    server.hear("generate")
    contents = [turn["content"] for turn in server.hear("generate")["request"]["messages"]]
    assert contents == ["hang half", "half", "say on"]


def test_a_refused_question_is_told_and_forgotten(server: Any, uds: str, screen: Screen) -> None:
    chat(uds=uds, read=reader("refuse", "say on"), screen=screen)
    assert "error: not that" in noted(screen)
    server.hear("generate")
    assert [turn["content"] for turn in server.hear("generate")["request"]["messages"]] == ["say on"]


def test_ctrl_c_at_the_prompt_stays(server: Any, uds: str, screen: Screen) -> None:
    assert chat(uds=uds, read=reader(KeyboardInterrupt, "say on"), screen=screen) == 0
    assert said(screen) == "on\n"


def test_no_server_is_told_at_once(uds: str, screen: Screen) -> None:
    assert chat(uds=uds, read=reader("say hi"), screen=screen) == 1
    assert (
        noted(screen)
        == f"nothing listens at unix:{uds}; start a server with `stretto serve`, or say where one is\n"
    )
