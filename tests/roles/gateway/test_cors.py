"""What browsers are told of pages from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from stretto.roles import messages as m
from stretto.tests.roles.gateway.house import PATIENCE, House, ids

PAGE, OTHER, STRANGER = "http://localhost:3000", "https://chat.example.com", "https://evil.example.com"
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
POST = "/v1/chat/completions"
KEY = {"authorization": "Bearer secret"}


@pytest.fixture
def open_house(build: Callable[..., House]) -> House:
    """Open to two pages, and with a key."""
    return build(allowed_origins=f"{PAGE},{OTHER}", api_key="secret")


def preflight(house: House, origin: str, headers: str = "authorization,content-type,x-stainless-os") -> Any:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": headers}
    return house.http.options(POST, headers={"origin": origin, "authorization": "", **asks})


def allowed(answer: Any) -> list[str]:
    return answer.headers.get_list("access-control-allow-origin")  # type: ignore[no-any-return]


def test_a_preflight_needs_no_key(open_house: House) -> None:
    answer = preflight(open_house, PAGE)
    assert (answer.status_code, allowed(answer)) == (200, [PAGE])
    assert "POST" in answer.headers["access-control-allow-methods"].split(", ")
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
    refused = preflight(open_house, STRANGER)
    assert (refused.status_code, allowed(refused)) == (400, [])


def test_a_page_may_read_its_answer_and_when_to_come_again(open_house: House) -> None:
    answer = open_house.http.post(POST, json=CHAT, headers={"origin": PAGE})
    assert (answer.status_code, allowed(answer)) == (200, [PAGE])
    assert answer.headers["access-control-expose-headers"] == "retry-after, x-request-id, x-should-retry"
    assert answer.headers["vary"] == "Origin"


def test_a_page_may_read_errors(open_house: House) -> None:
    page = {"origin": PAGE}
    nobody = open_house.http.post(POST, json=CHAT, headers={**page, "authorization": ""})
    garbled = open_house.http.post(POST, content=b"{", headers=page)
    nowhere = open_house.http.get("/nothing", headers=page)
    open_house.back.full = True
    crowded = open_house.http.post(POST, json=CHAT, headers=page)
    answers = [nobody, garbled, nowhere, crowded]
    assert [answer.status_code for answer in answers] == [401, 400, 404, 429]
    assert [allowed(answer) for answer in answers] == [[PAGE]] * 4


def test_a_bug_of_ours_can_be_read_too(open_house: House) -> None:
    def stumble(submit: m.Submit) -> list[m.ToGateway]:
        raise RuntimeError("planted")

    open_house.back.script = stumble
    answer = open_house.http.post(POST, json=CHAT, headers={"origin": PAGE})
    assert (answer.status_code, allowed(answer)) == (500, [PAGE])


def test_each_stream_has_the_headers_of_its_own_page(open_house: House) -> None:
    for origin, expected in [(PAGE, [PAGE]), (OTHER, [OTHER]), (STRANGER, []), (PAGE, [PAGE])]:
        answer = open_house.http.post(POST, json={**CHAT, "stream": True}, headers={"origin": origin})
        assert answer.text.endswith("data: [DONE]\n\n")
        assert allowed(answer) == expected
        assert answer.headers["vary"] == "Origin"


def test_a_stream_is_not_held_back(open_house: House) -> None:
    open_house.back.script = lambda submit: [m.Events([m.Event(submit.uid, 0, "Hello", ids(7))])]
    asked = {"json": {**CHAT, "stream": True}, "headers": {"origin": PAGE}}
    with open_house.http.stream("POST", POST, **asked) as answer:  # type: ignore[arg-type]
        uid = open_house.submitted().uid
        pieces = answer.iter_text()
        assert any('"content":"Hello"' in piece for piece in pieces)
        open_house.send(m.Event(uid, 1, "", b"", "stop", None, m.Usage(5, 1), offset=5))
        assert "".join(pieces).endswith("data: [DONE]\n\n")


def test_a_stranger_gets_no_leave_to_read(open_house: House) -> None:
    answer = open_house.http.post(POST, json=CHAT, headers={"origin": STRANGER})
    assert allowed(answer) == []


def test_a_star_lets_any_page_in(build: Callable[..., House]) -> None:
    house = build(allowed_origins="*")
    assert allowed(preflight(house, STRANGER)) == ["*"]
    assert allowed(house.http.post(POST, json=CHAT, headers={"origin": STRANGER})) == ["*"]
    with connect(house.ws_url, origin=Origin(STRANGER), open_timeout=PATIENCE):
        pass


def test_without_a_list_no_page_is_told_anything(house: House) -> None:
    assert preflight(house, PAGE).status_code == 405
    assert allowed(house.http.post(POST, json=CHAT, headers={"origin": PAGE})) == []
    with connect(house.ws_url, origin=Origin(PAGE), open_timeout=PATIENCE):
        pass


@pytest.mark.parametrize("origin", [PAGE, None])
def test_a_websocket_is_open_to_listed_pages_and_to_programs(open_house: House, origin: Any) -> None:
    with connect(open_house.ws_url, origin=origin, additional_headers=KEY, open_timeout=PATIENCE):
        pass


def test_a_websocket_is_refused_to_strangers(open_house: House) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(open_house.ws_url, origin=Origin(STRANGER), additional_headers=KEY, open_timeout=PATIENCE)
    assert refused.value.response.status_code == 403
    assert b'"code":"origin_not_allowed"' in refused.value.response.body
