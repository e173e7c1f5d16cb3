"""Real answers are what the schemas say, field by field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stretto.roles.gateway import schemas
from stretto.tests.roles.gateway.house import MODEL, House, chorus

TURN = {"role": "user", "content": "Hi"}
ALL = {"return_token_ids": True, "prompt_logprobs": 1, "n": 2}


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/chat/completions", {"messages": [TURN]}, schemas.ChatCompletion),
        (
            "/v1/chat/completions",
            {"messages": [TURN], "logprobs": True, "top_logprobs": 2, **ALL},
            schemas.ChatCompletion,
        ),
        ("/v1/completions", {"prompt": "Hi"}, schemas.TextCompletion),
        ("/v1/completions", {"prompt": "Hi", "logprobs": 2, "echo": True, **ALL}, schemas.TextCompletion),
        ("/v1/completions", {"prompt": "Hi", "n": 0}, schemas.Error),
        ("/tokenize", {"prompt": "Hi", "return_token_strs": True}, schemas.Tokens),
        ("/detokenize", {"tokens": [72]}, schemas.Text),
        ("/abort", {"request_id": "x"}, schemas.Aborted),
    ],
)
def test_what_is_posted(house: House, path: str, body: dict[str, Any], kind: Any) -> None:
    house.back.script = chorus
    msgspec.json.decode(house.http.post(path, json=body).content, type=kind)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/models", schemas.ModelList),
        (f"/v1/models/{MODEL}", schemas.Model),
        ("/version", schemas.Version),
        ("/health", schemas.Health),
        ("/server_info", schemas.ServerInfo),
    ],
)
def test_what_is_fetched(house: House, path: str, kind: Any) -> None:
    msgspec.json.decode(house.http.get(path).content, type=kind)
