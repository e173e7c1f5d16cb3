"""What the prefix cache holds, asked over HTTP."""

from __future__ import annotations

from stretto.roles import messages as m
from stretto.roles.metrics import Meter
from stretto.tests.roles.gateway.house import House

SUMMARY = m.CacheSummary(1000, 3, 2, 10, 20, 30, [m.CachedPrefix(16, 600, 1, 2, 7)])


def reporting(question: m.Tokenize | m.Detokenize | m.CacheQuery) -> m.ToGateway:
    assert isinstance(question, m.CacheQuery)
    return m.CacheReport(question.uid, question.gateway, SUMMARY, 640 if question.flush else 0)


def test_the_cache_is_shown_in_numbers(house: House) -> None:
    house.back.reply = reporting
    scheduler = Meter("scheduler", house.board.row("scheduler.0"))
    scheduler.add("prompt_tokens_total", 300)
    scheduler.add("cached_tokens_total", 200)
    scheduler.add("host_cached_tokens_total", 60)
    scheduler.add("disk_cached_tokens_total", 30)
    assert house.http.get("/cache").json() == {
        "hit_rate": 0.6667,
        "host_hit_rate": 0.2,
        "disk_hit_rate": 0.1,
        "tokens": 1000,
        "nodes": 3,
        "salts": 2,
        "pages_free": 10,
        "pages_cached": 20,
        "pages_owned": 30,
        "largest": [{"start": 16, "tokens": 600, "running": 1, "continuations": 2, "uses_ago": 7}],
    }
    for name in (
        "prompt_tokens_total",
        "cached_tokens_total",
        "host_cached_tokens_total",
        "disk_cached_tokens_total",
    ):
        scheduler.set(name, 0)


def test_the_cache_is_flushed_and_its_tokens_are_counted(house: House) -> None:
    house.back.reply = reporting
    assert house.http.post("/flush_cache").json() == {"flushed_tokens": 640}
    question = house.back.questions.get_nowait()
    assert question == m.CacheQuery(question.uid, 0, flush=True)


def test_what_cannot_be_asked_is_said(house: House) -> None:
    house.back.full = True
    answer = house.http.get("/cache")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "overloaded")
    house.back.full = False
