"""The two endpoints of a recording."""

from __future__ import annotations

from stretto.tests.roles.gateway.house import House


def test_a_profile_is_started_and_stopped(house: House) -> None:
    started = house.http.post("/start_profile")
    assert (started.status_code, started.json()) == (200, {"status": "recording"})
    trace = house.http.post("/stop_profile")
    assert (trace.status_code, trace.headers["content-type"]) == (200, "application/json")
    assert set(trace.json()) == {"traceEvents", "displayTimeUnit", "otherData"}


def test_the_wrong_order_is_a_conflict(house: House) -> None:
    refused = house.http.post("/stop_profile")
    assert (refused.status_code, refused.json()["error"]["param"]) == (409, None)
    house.http.post("/start_profile")
    assert house.http.post("/start_profile").status_code == 409
    assert house.http.post("/stop_profile").status_code == 200


def test_only_who_has_the_key_may_look(build) -> None:  # type: ignore[no-untyped-def]
    house = build(api_key="secret")
    for path in ("/start_profile", "/stop_profile"):
        assert house.http.post(path, headers={"authorization": "Bearer wrong"}).status_code == 401
