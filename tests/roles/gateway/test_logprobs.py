"""The forms of log-probabilities; `test_apis` sees them in answers."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.roles.gateway.job import Job
from stretto.roles.gateway.logprobs import ChatLogprobs, TextLogprobs, finite, prompt_object
from stretto.roles.messages import Alternative, Event, SamplingParams, TokenInfo

SMILE = "😀".encode()


def job(top: int = 0, **form: Any) -> Job:
    return Job(params=SamplingParams(logprobs=top), prompts=("Hi",), **form)


def info(raw: bytes, logprob: float = -1.0, *top: Alternative) -> TokenInfo:
    return TokenInfo(raw[0], raw.decode(errors="replace"), raw, logprob, 1, list(top))


def said(*infos: TokenInfo, **fields: Any) -> Event:
    return Event(1, 0, "", logprobs=list(infos), **fields)


def test_minus_infinity_is_a_number() -> None:
    assert [finite(float("-inf")), finite(-0.5)] == [-9999.0, -0.5]


def test_offsets_count_characters_and_go_on_from_event_to_event() -> None:
    form = TextLogprobs(job())
    first = form.form(said(info("ö".encode()), info(SMILE[:2])))
    second = form.form(said(info(SMILE[2:]), info(b"a")))
    assert (first["text_offset"], second["text_offset"]) == ([0, 1], [1, 2])
    assert first["tokens"] + second["tokens"] == ["ö", "bytes:\\xf0\\x9f", "bytes:\\x98\\x80", "a"]


def test_of_alternatives_of_one_text_the_likeliest_stays() -> None:
    top = [Alternative(1, "a", b"a", -0.5), Alternative(2, "a", b"a", -2.0)]
    (table,) = TextLogprobs(job(2)).form(said(info(b"a", -3.0, *top)))["top_logprobs"]
    assert table == {"a": -0.5}


@pytest.mark.parametrize(
    ("first", "rest", "names", "offsets"),
    [
        (b"H", [b"ello"], ["H", "ello"], [0, 1]),
        (b"\xc3", [b"\xb6", b"l"], ["bytes:\\xc3", "bytes:\\xb6", "l"], [0, 0, 1]),
        (b"<s>", [b" Hi"], ["<s>", " Hi"], [0, 3]),
        (b"H", [b"\xf0\x9f"], ["H", "bytes:\\xf0\\x9f"], [0, 1]),
        (b"H", [], ["H"], [0]),
    ],
)
def test_an_echoed_prompt_is_told_from_its_first_token_on(
    first: bytes, rest: list[bytes], names: list[str], offsets: list[int]
) -> None:
    event = said(prompt_first=(7, first), prompt_logprobs=[None, *map(info, rest)])
    form = TextLogprobs(job(echo=True)).form(event)
    assert (form["tokens"], form["text_offset"]) == (names, offsets)
    assert form["token_logprobs"] == [None] + [-1.0] * len(rest)
    assert TextLogprobs(job(echo=True, tokens_as_ids=True)).form(event)["tokens"][0] == "token_id:7"


def test_a_prompt_that_is_not_echoed_is_not_told() -> None:
    event = said(info(b"a"), prompt_logprobs=[None, info(b"x")])
    assert TextLogprobs(job()).form(event)["tokens"] == ["a"]


def test_tokens_may_be_named_by_their_ids() -> None:
    event = said(info(b"a", -1.0, Alternative(98, "b", b"b", -2.0)))
    (token,) = ChatLogprobs(job(1, tokens_as_ids=True)).form(event)["content"]
    assert (token["token"], token["top_logprobs"][0]["token"]) == ("token_id:97", "token_id:98")
    form = TextLogprobs(job(1, tokens_as_ids=True)).form(event)
    assert form["top_logprobs"] == [{"token_id:98": -2.0, "token_id:97": -1.0}]


def test_a_prompts_table_has_the_token_first_and_each_once() -> None:
    top = [Alternative(97, "a", b"a", -1.0), Alternative(98, "b", b"b", -2.0)]
    event = Event(1, 0, "", prompt_logprobs=[None, info(b"a", -1.0, *top)])
    assert prompt_object(job(prompt_logprobs=2), event) == [
        None,
        {
            "97": {"logprob": -1.0, "rank": 1, "decoded_token": "a"},
            "98": {"logprob": -2.0, "rank": 2, "decoded_token": "b"},
        },
    ]
    assert prompt_object(job(), event) is None
