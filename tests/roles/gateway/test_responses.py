"""OpenAI's client and its Responses API, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from stretto.roles import messages as m
from stretto.tests.roles.gateway.house import MODEL, PATIENCE, House, chorus, ids, silence, unseeded

TURN = {"role": "user", "content": "Hi"}
ANSWER = {"role": "assistant", "content": "Hello, wörld"}


@pytest.fixture
def client(house: House) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{house.url}/v1", api_key="any", max_retries=0, timeout=PATIENCE)


@pytest.fixture(autouse=True)
def _nothing_is_left(house: House) -> Any:
    yield
    assert house.live == 0


def post(house: House, **fields: Any) -> Any:
    return house.http.post("/v1/responses", json={"input": "Hi", **fields})


def events_of(text: str) -> list[Any]:
    """The bodies of a stream's events, whose names they repeat."""
    bodies = []
    for block in text.rstrip().split("\n\n"):
        name, data = block.split("\n")
        bodies.append(json.loads(data.removeprefix("data: ")))
        assert bodies[-1]["type"] == name.removeprefix("event: ")
    assert [body["sequence_number"] for body in bodies] == list(range(len(bodies)))
    return bodies


def test_the_client_gets_a_response(client: openai.OpenAI, house: House) -> None:
    response = client.responses.create(
        model=MODEL,
        input="Hi",
        instructions="Be brief.",
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.9,
        metadata={"a": "b"},
    )
    assert response.id.startswith("resp_")
    assert (response.object, response.status, response.model) == ("response", "completed", MODEL)
    assert (response.output_text, response.error) == ("Hello, wörld", None)
    assert (response.instructions, response.metadata) == ("Be brief.", {"a": "b"})
    assert (response.temperature, response.top_p, response.max_output_tokens) == (0.5, 0.9, 9)
    assert response.output[0].type == "message"
    assert response.output[0].status == "completed"
    usage = response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (5, 2, 7)
    assert usage.input_tokens_details.cached_tokens == 3
    submit = house.submitted()
    assert submit.messages == [{"role": "system", "content": "Be brief."}, TURN]
    assert unseeded(submit.params) == m.SamplingParams(max_tokens=9, temperature=0.5, top_p=0.9)


def test_the_client_streams_a_response(client: openai.OpenAI) -> None:
    with client.responses.stream(model=MODEL, input="Hi") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert deltas == ["Hello", ", wörld"]
    assert (final.output_text, final.status) == ("Hello, wörld", "completed")
    assert client.responses.retrieve(final.id).output_text == "Hello, wörld"


def test_the_stream_is_openais_to_the_letter(house: House) -> None:
    answer = post(house, stream=True, stream_options={"include_obfuscation": False})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = events_of(answer.text)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert (events[0]["response"]["status"], events[0]["response"]["output"]) == ("in_progress", [])
    item = events[2]["item"]
    assert (item["status"], item["content"]) == ("in_progress", [])
    assert events[3]["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    assert all(event.items() >= place.items() for event in events[3:8])
    assert (events[4]["delta"], events[6]["text"]) == ("Hello", "Hello, wörld")
    assert events[9]["response"]["output"] == [events[8]["item"]]
    assert events[9]["response"]["usage"]["total_tokens"] == 7


def test_input_items_of_all_kinds(client: openai.OpenAI, house: House) -> None:
    parts: Any = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    first = client.responses.create(model=MODEL, input="Hi")
    house.submitted()
    items: Any = [
        {"role": "developer", "content": "x"},
        {"role": "user", "content": parts, "type": "message"},
    ]
    client.responses.create(model=MODEL, input=items + [item.model_dump() for item in first.output])
    assert house.submitted().messages == [
        {"role": "system", "content": "x"},
        {"role": "user", "content": "a\nb"},
        ANSWER,
    ]


def test_a_conversation_goes_on_without_its_instructions(client: openai.OpenAI, house: House) -> None:
    first = client.responses.create(model=MODEL, input="Hi", instructions="Be brief.")
    second = client.responses.create(model=MODEL, input="And?", previous_response_id=first.id)
    client.responses.create(model=MODEL, input="So?", previous_response_id=second.id)
    assert second.previous_response_id == first.id
    house.submitted()
    house.submitted()
    said = [TURN, ANSWER, {"role": "user", "content": "And?"}, ANSWER, {"role": "user", "content": "So?"}]
    assert house.submitted().messages == said


def test_log_probabilities_come_with_the_text(client: openai.OpenAI, house: House) -> None:
    house.back.script = chorus
    response: Any = client.responses.create(
        model=MODEL, input="Hi", include=["message.output_text.logprobs"], top_logprobs=1
    )
    part = response.output[0].content[0]
    assert [(entry.token, entry.logprob, entry.bytes) for entry in part.logprobs] == [
        ("0", -4.0, [48]),
        ("ö", -0.25, [195, 182]),
    ]
    assert [other.token for other in part.logprobs[0].top_logprobs] == ["ö"]
    streamed = events_of(post(house, stream=True, top_logprobs=1).text)
    deltas = [event for event in streamed if event["type"] == "response.output_text.delta"]
    assert [[entry["token"] for entry in delta["logprobs"]] for delta in deltas] == [["0"], ["ö"]]


def test_a_response_cut_short_is_incomplete(house: House) -> None:
    house.back.script = chorus
    body = post(house).json()
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (body["output"][0]["status"], body["completed_at"]) == ("incomplete", None)
    assert events_of(post(house, stream=True).text)[-1]["type"] == "response.incomplete"


def test_what_is_not_to_be_stored_is_not(client: openai.OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Hi", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input="Hi", previous_response_id=response.id)
    assert (refused.value.param, refused.value.code) == (
        "previous_response_id",
        "previous_response_not_found",
    )


@pytest.mark.parametrize("stream", [True, False])
def test_a_rejection_gets_its_own_status_and_is_not_stored(house: House, stream: bool) -> None:
    house.back.script = lambda submit: [m.Rejected(submit.uid, m.Fault(400, "too long"))]
    answer = post(house, stream=stream)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "too long")


def test_an_error_in_mid_stream_is_a_failed_response(client: openai.OpenAI, house: House) -> None:
    house.back.script = lambda s: [
        m.Events([m.Event(s.uid, 0, "a", ids(1))]),
        m.Events([m.Event(s.uid, 1, "", finish_reason="error", fault=m.Fault(503, "gone"))]),
    ]
    last = events_of(post(house, stream=True).text)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"] == {"code": "server_error", "message": "gone"}
    assert client.responses.retrieve(last["response"]["id"]).status == "failed"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "function_call", "role": "user", "content": ""}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"model": "huge"}, "model"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format.type"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True, "store": False}, "store"),
        ({"stream_options": {}}, "stream_options"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_a_wrong_field_is_refused_by_name(house: House, fields: dict[str, Any], param: str) -> None:
    answer = post(house, **fields)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


def test_a_background_response_is_fetched_later(client: openai.OpenAI, house: House) -> None:
    house.back.script = silence
    queued = client.responses.create(model=MODEL, input="Hi", background=True)
    assert (queued.status, queued.background, queued.output) == ("queued", True, [])
    uid = house.submitted().uid
    assert client.responses.retrieve(queued.id).status == "queued"
    house.send(m.Event(uid, 0, "Hello", ids(7, 8), "stop", usage=m.Usage(5, 2)))
    done = client.responses.retrieve(queued.id)
    assert (done.status, done.output_text) == ("completed", "Hello")
    assert house.back.cancels.empty()


def test_a_background_response_is_cancelled_and_cancelled_again(client: openai.OpenAI, house: House) -> None:
    house.back.script = lambda submit: [m.Events([m.Event(submit.uid, 0, "Hel", ids(7))])]
    queued = client.responses.create(model=MODEL, input="Hi", background=True)
    uid = house.submitted().uid
    cancelled = client.responses.cancel(queued.id)
    assert (cancelled.status, cancelled.output_text) == ("cancelled", "Hel")
    assert house.cancelled() == uid
    assert client.responses.cancel(queued.id) == cancelled
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model=MODEL, input="And?", previous_response_id=queued.id)


def test_a_background_response_that_fails_says_why(client: openai.OpenAI, house: House) -> None:
    house.back.script = lambda submit: [m.Rejected(submit.uid, m.Fault(400, "too long"))]
    queued = client.responses.create(model=MODEL, input="Hi", background=True)
    failed = client.responses.retrieve(queued.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert (failed.error.code, failed.error.message) == ("invalid_prompt", "too long")


def test_a_full_back_end_refuses_the_background_too(house: House) -> None:
    house.back.full = True
    assert post(house, background=True).status_code == 429


def test_a_background_stream_is_followed_and_followed_again(client: openai.OpenAI, house: House) -> None:
    house.back.script = silence
    with client.responses.create(model=MODEL, input="Hi", background=True, stream=True) as stream:
        created = next(stream)
        assert created.type == "response.created"
    uid = house.submitted().uid
    house.send(m.Event(uid, 0, "Hel", ids(7)))
    again = client.responses.retrieve(created.response.id, stream=True, starting_after=3)
    first = next(again)
    assert (first.type, first.sequence_number) == ("response.output_text.delta", 4)
    house.send(m.Event(uid, 1, "lo", ids(8), "stop", usage=m.Usage(5, 2)))
    assert [event.type for event in again][-1] == "response.completed"
    url = f"/v1/responses/{created.response.id}?stream=true"
    assert len(events_of(house.http.get(url).text)) == 10
    assert house.back.cancels.empty()
