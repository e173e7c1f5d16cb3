"""What an idle server may not hold."""

from __future__ import annotations

from stretto.bench.settled import held

IDLE = {"stretto_kv_pages": 10.0, "stretto_kv_pages_free": 7.0, "stretto_kv_pages_cached": 3.0}


def test_cached_pages_are_nobodys() -> None:
    assert held(IDLE.get) == []


def test_leaks_are_told() -> None:
    assert held((IDLE | {"stretto_kv_pages_free": 6.0, "stretto_streams_live": 1.0}).get) == [
        "streams_live is 1 on an idle server",
        "1 of 10 KV pages are leaked",
    ]
