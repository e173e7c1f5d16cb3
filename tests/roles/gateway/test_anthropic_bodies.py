"""What a body of the Messages API asks for."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from stretto.roles.gateway import anthropic_bodies as bodies
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.reader import Reader
from stretto.roles.messages import SamplingParams

TURN = {"role": "user", "content": "Hi"}

reader = Reader(bodies.MessagesBody)


def read(**fields: Any) -> bodies.MessagesBody:
    body = reader.read(orjson.dumps({"model": "tiny", "max_tokens": 9, "messages": [TURN], **fields}))
    bodies.check(body, "tiny")
    return body


def said(**fields: Any) -> list[tuple[str, str]]:
    return [(turn["role"], turn["content"]) for turn in bodies.conversation(read(**fields))]


def test_the_job_is_a_chat() -> None:
    assert bodies.job(read()) == Job(params=SamplingParams(max_tokens=9), messages=[TURN])
    assert bodies.job(read(max_tokens=0, stream=True)).params.max_tokens == 0


def test_null_means_the_default_everywhere() -> None:
    required = ("model", "max_tokens", "messages")
    fields = [field for field in bodies.MessagesBody.__struct_fields__ if field not in required]
    assert bodies.job(read(**dict.fromkeys(fields))) == bodies.job(read())


def test_turns_of_one_role_are_one() -> None:
    parts = [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    turns = [{"role": "user", "content": "a"}, {"role": "user", "content": parts}]
    turns += [{"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]
    assert said(messages=turns) == [("user", "a\nb\nc"), ("assistant", "d"), ("user", "e")]


def test_the_system_prompt_comes_first() -> None:
    assert said(system="Be brief.") == [("system", "Be brief."), ("user", "Hi")]
    assert said(system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}])[0] == (
        "system",
        "Be\nbrief.",
    )
    assert said(system="") == [("user", "Hi")]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": "huge"}, "model"),
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].type"),
        (
            {
                "messages": [
                    TURN,
                    {"role": "user", "content": [{"type": "text", "text": "", "citations": [1]}]},
                ]
            },
            "messages[1].content[0].citations",
        ),
        ({"temperature": 1.1}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"tools": [{}]}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "adaptive"}}, "thinking.type"),
        ({"container": "x"}, "container"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as refused:
        read(**fields)
    assert refused.value.fault.param == param
