"""Rates between two looks at a server."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from stretto.roles.client.snapshot import NoAnswer, Snapshot
from stretto.roles.client.top import COLUMNS, rates, top


def look(at: float, **figures: float) -> Snapshot:
    return Snapshot(True, {}, {f"stretto_{name}": value for name, value in figures.items()}, at)


def test_rates_are_what_was_gained_per_second() -> None:
    before = look(10.0, generated_tokens_total=100, device_busy_seconds_total=5, prompt_tokens_total=7)
    seen = look(12.0, generated_tokens_total=150, device_busy_seconds_total=6, prompt_tokens_total=7)
    words = dict(rates(before, seen))
    assert words["now"] == "25.0 tokens/s generated, 0.0 tokens/s of prompts, 0.0 requests/s"
    assert words[""] == "device busy 50.0 %, idle 0.0 % while there was work"


def test_the_first_look_has_no_rates() -> None:
    seen = look(12.0, generated_tokens_total=150)
    assert dict(rates(seen, seen))["now"].startswith("0.0 tokens/s")


def test_nothing_to_watch_is_told(uds: str) -> None:
    console = Console(file=io.StringIO(), width=500)
    assert top(uds=uds, console=console) == 1
    assert "stretto serve" in console.file.getvalue()  # type: ignore[attr-defined]


class Server:
    """Stands for `snapshot.look`: each look sees 50 tokens more, a second later; the third finds nobody."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self, *_: Any) -> Snapshot:
        self.looks += 1
        if self.looks == 3:
            raise NoAnswer("nobody")
        seen = look(
            self.looks,
            requests_running=3,
            generated_tokens_total=50 * self.looks,
            device_busy_seconds_total=self.looks / 2,
            kv_pages=8,
            kv_pages_owned=2,
        )
        return seen._replace(health={"status": "ok"})


def shown(monkeypatch: pytest.MonkeyPatch, looks: int, terminal: bool = False) -> str:
    """What is written, by a clock that stands still."""
    monkeypatch.setattr("stretto.roles.client.snapshot.look", Server())
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("time.strftime", lambda form: "12:00:00")
    console = Console(file=io.StringIO(), width=200, force_terminal=terminal)
    assert top(looks=looks, console=console) == 0
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_into_a_pipe_goes_a_row_for_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    head, first, silent, third = (line.split() for line in shown(monkeypatch, 3).splitlines())
    assert tuple(head) == COLUMNS
    assert first == ["12:00:00", "ok", "3", "0", "50.0", "0.0", "0.0", "50.0%", "0.0%", "25.0%"]
    assert silent == ["12:00:00", "unreachable"]
    assert third == first


def test_a_terminal_is_filled_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = shown(monkeypatch, 2, terminal=True)
    assert "50.0 tokens/s generated" in screen
    assert "tok/s" not in screen
    assert "nobody" in screen
