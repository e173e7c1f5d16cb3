"""The endpoints of stored responses, over HTTP."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from stretto.tests.roles.gateway.house import MODEL, PATIENCE, House, silence

INPUT: Any = [{"role": "user", "content": letter} for letter in "abc"]


@pytest.fixture
def client(house: House) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{house.url}/v1", api_key="any", max_retries=0, timeout=PATIENCE)


def test_a_response_is_fetched_as_it_was(client: openai.OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Hi")
    assert client.responses.retrieve(response.id) == response


def test_a_deleted_response_is_gone(client: openai.OpenAI, house: House) -> None:
    id = client.responses.create(model=MODEL, input="Hi").id
    answer = house.http.delete(f"/v1/responses/{id}")
    assert answer.json() == {"id": id, "object": "response", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(id)


def test_deleting_cancels_what_runs(client: openai.OpenAI, house: House) -> None:
    house.back.script = silence
    id = client.responses.create(model=MODEL, input="Hi", background=True).id
    client.responses.delete(id)
    assert house.cancelled() == house.submitted().uid


def test_only_a_background_response_is_cancelled(client: openai.OpenAI) -> None:
    id = client.responses.create(model=MODEL, input="Hi").id
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(id)


def test_only_a_streamed_background_response_is_streamed_again(client: openai.OpenAI) -> None:
    id = client.responses.create(model=MODEL, input="Hi").id
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.retrieve(id, stream=True)


def test_the_input_is_listed_latest_first_in_pages(client: openai.OpenAI) -> None:
    id = client.responses.create(model=MODEL, input=INPUT).id
    page: Any = client.responses.input_items.list(id, limit=2)
    assert [item.content[0].text for item in page.data] == ["c", "b"]
    assert page.has_more
    assert [item.content[0].text for item in page] == ["c", "b", "a"]
    ascending: Any = client.responses.input_items.list(id, order="asc")
    assert [item.content[0].text for item in ascending.data] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("input_items?limit=0", "limit"),
        ("input_items?limit=101", "limit"),
        ("input_items?limit=x", "limit"),
        ("input_items?limit=--5", "limit"),
        ("input_items?order=up", "order"),
        ("input_items?after=nobody", "after"),
        ("?stream=maybe", "stream"),
        ("?stream=true&starting_after=x", "starting_after"),
        ("?stream=true&starting_after=1", "stream"),
    ],
)
def test_a_wrong_query_is_refused_by_name(
    client: openai.OpenAI, house: House, query: str, param: str
) -> None:
    id = client.responses.create(model=MODEL, input="Hi").id
    answer = house.http.get(f"/v1/responses/{id}/{query}".replace("/?", "?"))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("path", ["", "/input_items", "?stream=true"])
def test_an_unknown_response_is_404(house: House, path: str) -> None:
    assert house.http.get(f"/v1/responses/resp_x{path}").status_code == 404
    assert house.http.post("/v1/responses/resp_x/cancel").status_code == 404
