"""A model's words on a terminal."""

from __future__ import annotations

import io

from stretto.roles.client.terminal import Screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_not_driven_by_control_characters() -> None:
    out = Terminal()
    Screen(out, io.StringIO()).write("a\x1b[2Jb\x07\tc\x9b1\n")
    assert out.getvalue() == "a[2Jb\tc1\n"


def test_a_pipe_gets_every_character() -> None:
    out = io.StringIO()
    Screen(out, io.StringIO()).write("a\x1bb")
    assert out.getvalue() == "a\x1bb"


def test_notes_are_dim_on_a_terminal_only() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    Screen(io.StringIO(), terminal).note("fast")
    Screen(io.StringIO(), pipe).note("fast")
    assert (terminal.getvalue(), pipe.getvalue()) == ("\x1b[2mfast\x1b[0m\n", "fast\n")
