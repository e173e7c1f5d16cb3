"""Real answers of the other APIs are what the schemas say, field by field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stretto.roles.gateway import schemas_others as schemas
from stretto.tests.roles.gateway.house import MODEL, House, chorus

TURN = {"role": "user", "content": "Hi"}
MESSAGE = {"model": MODEL, "messages": [TURN]}


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/responses", {"input": "Hi", "top_logprobs": 2, "metadata": {"a": "b"}}, schemas.Response),
        ("/v1/responses", {"input": [TURN], "background": True}, schemas.Response),
        ("/v1/messages", {**MESSAGE, "max_tokens": 1}, schemas.AnthropicMessage),
        ("/v1/messages", {**MESSAGE, "max_tokens": -1}, schemas.AnthropicError),
        ("/v1/messages/count_tokens", MESSAGE, schemas.TokenCount),
        ("/generate", {"text": "Hi"}, schemas.Generated),
        (
            "/generate",
            {"text": ["Hi"], "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2},
            list[schemas.Generated],
        ),
    ],
)
def test_what_is_posted(house: House, path: str, body: dict[str, Any], kind: Any) -> None:
    house.back.script = chorus
    msgspec.json.decode(house.http.post(path, json=body).content, type=kind)


def test_what_is_stored(house: House) -> None:
    id = house.http.post("/v1/responses", json={"input": [TURN, {**TURN, "role": "assistant"}]}).json()["id"]
    url = f"/v1/responses/{id}"
    msgspec.json.decode(house.http.get(url).content, type=schemas.Response)
    msgspec.json.decode(house.http.get(f"{url}/input_items").content, type=schemas.InputItems)
    msgspec.json.decode(house.http.delete(url).content, type=schemas.Deleted)
