"""What a body of the Responses API asks for."""

from __future__ import annotations

from typing import Any

import orjson

from stretto.roles.gateway import responses_bodies as bodies
from stretto.roles.gateway.reader import Reader
from stretto.roles.messages import SamplingParams

reader = Reader(bodies.ResponsesBody)


def read(**fields: Any) -> bodies.ResponsesBody:
    body = reader.read(orjson.dumps({"input": "Hi", **fields}))
    bodies.check(body, "tiny")
    return body


def test_null_means_the_default_everywhere() -> None:
    fields = [field for field in bodies.ResponsesBody.__struct_fields__ if field != "input"]
    assert bodies.job(read(**dict.fromkeys(fields)), "r", []) == bodies.job(read(), "r", [])


def test_the_job_has_instructions_then_what_was_said_then_the_input() -> None:
    earlier = [{"role": "user", "content": "Before"}]
    job = bodies.job(read(instructions="Be brief."), "resp_1", earlier)
    assert [turn["content"] for turn in job.messages or []] == ["Be brief.", "Before", "Hi"]
    assert (job.request_id, job.params) == ("resp_1", SamplingParams())


def test_the_harmless_fields_change_nothing() -> None:
    harmless = {
        "user": "me",
        "safety_identifier": "x",
        "prompt_cache_key": "x",
        "prompt_cache_retention": "24h",
        "service_tier": "auto",
        "parallel_tool_calls": True,
        "truncation": "disabled",
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "reasoning": {"effort": None},
        "tools": [],
        "tool_choice": "auto",
        "include": [],
        "context_management": [],
    }
    assert bodies.job(read(**harmless), "r", []) == bodies.job(read(), "r", [])


def test_items_are_shown_with_ids_and_parts() -> None:
    answer = {"id": "msg_9", "role": "assistant", "status": "completed", "content": "Hello"}
    body = read(input=[{"role": "user", "content": "Hi"}, answer])
    first, second = bodies.items(body, "resp_1")
    assert first == {
        "id": "msg_resp_1_0",
        "type": "message",
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_text", "text": "Hi"}],
    }
    assert (second["id"], second["content"]) == (
        "msg_9",
        [{"type": "output_text", "text": "Hello", "annotations": []}],
    )
