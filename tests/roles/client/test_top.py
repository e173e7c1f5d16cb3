"""Rates between two looks at a server."""

from __future__ import annotations

import io

from rich.console import Console

from stretto.roles.client.snapshot import Snapshot
from stretto.roles.client.top import rates, top


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
