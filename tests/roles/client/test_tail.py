"""A child's error output."""

from __future__ import annotations

import io

from stretto.roles.client.tail import TAIL_LINES, Tail


def test_lines_are_copied_and_the_last_are_kept() -> None:
    echo = io.StringIO()
    lines = [f"line {number}\n" for number in range(TAIL_LINES + 5)]
    tail = Tail(io.BytesIO("".join(lines).encode()), echo)
    tail.join()
    assert echo.getvalue() == "".join(lines)
    assert tail.text() == "".join(lines[5:]).rstrip()


def test_the_child_is_emptied_even_when_nobody_listens() -> None:
    echo = io.StringIO()
    echo.close()
    pipe = io.BytesIO(b"a\n\xff\n")
    tail = Tail(pipe, echo)
    tail.join()
    assert tail.text() == "a\n�"
