"""The progress bar."""

from __future__ import annotations

import pytest

from stretto.roles.client.frames import Usage
from stretto.roles.client.progress import progress


def test_the_bar_shows_requests_and_rates(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(2, True) as advance:
        advance(Usage(prompt_tokens=5, completion_tokens=10))
        advance(Usage(prompt_tokens=5, completion_tokens=10))
    shown = capsys.readouterr().err
    assert "Requests: 100%" in shown
    assert "2/2" in shown
    assert "tok/s" in shown


def test_no_bar_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1, False) as advance:
        advance(Usage())
    assert capsys.readouterr().err == ""
