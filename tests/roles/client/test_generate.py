"""One answer for a pipe: the text on one stream, trouble on the other, and an exit code."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from stretto.roles.client.generate import generate
from stretto.roles.client.terminal import Screen


@pytest.fixture
def screen() -> Screen:
    return Screen(io.StringIO(), io.StringIO())


def said(screen: Screen) -> str:
    assert isinstance(screen._out, io.StringIO)
    return screen._out.getvalue()


def noted(screen: Screen) -> str:
    assert isinstance(screen._err, io.StringIO)
    return screen._err.getvalue()


def test_the_answer_is_printed(server: Any, uds: str, screen: Screen) -> None:
    assert generate(prompt="say he llo", uds=uds, system="Be brief.", screen=screen, max_tokens=3) == 0
    assert said(screen) == "hello\n"
    assert server.hear("generate")["request"] == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "say he llo"}],
        "max_tokens": 3,
    }


def test_a_raw_prompt_goes_as_it_is(server: Any, uds: str, screen: Screen) -> None:
    assert generate(prompt="say on", uds=uds, raw=True, screen=screen) == 0
    assert server.hear("generate")["request"] == {"prompt": "say on"}


def test_a_failure_is_an_exit_code_and_a_message(server: Any, uds: str, screen: Screen) -> None:
    assert generate(prompt="refuse", uds=uds, screen=screen) == 1
    assert noted(screen) == "error: not that\n"


def test_a_closed_pipe_ends_it_quietly_and_cancels(server: Any, uds: str) -> None:
    code = textwrap.dedent(f"""
        import sys
        from stretto.roles.client.generate import generate
        sys.exit(generate(prompt="hang a", uds={uds!r}))
    """)
    line, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(line, stdout=pipe, stderr=pipe) as program:
        assert program.stdout is not None
        program.stdout.close()
        assert program.communicate()[1] == b""
    assert program.returncode == 1
    server.hear("cancel")
