"""What is accepted, what becomes of it, and what is refused by which name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.intake import Intake
from stretto.roles.gateway.job import Job
from stretto.roles.messages import Fault, SamplingParams

intake = Intake("tiny")
TURN = {"role": "user", "content": "Hi"}


def chat(**fields: Any) -> Job:
    return intake.chat(json.dumps({"messages": [TURN], **fields}).encode())


def text(**fields: Any) -> Job:
    return intake.text(json.dumps({"prompt": "Hi", **fields}).encode())


def fault_of(function: Any, *args: Any, **fields: Any) -> Fault:
    with pytest.raises(Refused) as caught:
        function(*args, **fields)
    return caught.value.fault


def test_the_least_chat_has_openais_defaults() -> None:
    assert chat() == Job(params=SamplingParams(), messages=[TURN])


def test_every_sampling_field_arrives() -> None:
    fields: dict[str, Any] = {
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "seed": 2**64 - 1,
        "stop": ["a", "b"],
        "stop_token_ids": [5],
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "n": 2,
        "best_of": 3,
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "repetition_penalty": 1.5,
        "logit_bias": {"5": -100, "7": 1.5},
        "allowed_token_ids": [5, 7],
        "bad_words": ["x y"],
        "min_tokens": 3,
        "prompt_logprobs": 2,
    }
    expected = SamplingParams(
        **{
            **{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()},
            "logit_bias": {5: -100.0, 7: 1.5},
            "logprobs": 4,
        }
    )
    assert text(**fields, logprobs=4).params == expected
    assert chat(**fields, logprobs=True, top_logprobs=4).params == expected


def test_every_field_of_beam_search_arrives() -> None:
    fields: dict[str, Any] = {"use_beam_search": True, "length_penalty": 0.5, "early_stopping": "never"}
    params = text(**fields, best_of=4, n=2).params
    assert params == SamplingParams(**fields, best_of=4, n=2, max_tokens=16)


def test_a_chats_logprobs_are_a_switch_and_a_number() -> None:
    assert chat().params.logprobs is None
    assert chat(logprobs=True).params.logprobs == 0
    assert chat(logprobs=False, top_logprobs=0).params.logprobs is None
    assert text(logprobs=0).params.logprobs == 0


def test_an_echo_with_logprobs_needs_those_of_the_prompt() -> None:
    job = text(echo=True, logprobs=3, prompt_logprobs=5)
    assert (job.echo, job.params.prompt_logprobs, job.prompt_logprobs) == (True, 5, 5)
    job = text(echo=True, logprobs=3)
    assert (job.params.prompt_logprobs, job.prompt_logprobs) == (3, None)
    assert text(echo=True).params == SamplingParams(max_tokens=16)


def test_completions_have_openais_limit_unless_they_name_one() -> None:
    assert text().params.max_tokens == 16
    assert text(min_tokens=20).params.max_tokens == 20
    assert text(max_tokens=3).params.max_tokens == 3
    assert chat().params.max_tokens is None


def test_a_chats_echo_is_the_answers_own_beginning() -> None:
    opened = {"role": "assistant", "content": "Well"}
    assert chat(messages=[TURN, opened], echo=True).lead == "Well"
    assert chat(messages=[TURN, opened]).lead == chat(echo=True).lead == ""
    assert not chat(messages=[TURN, opened], echo=True).echo


def test_a_temperature_below_vllms_epsilon_is_greedy() -> None:
    assert text(temperature=9e-6).params.temperature == 0
    assert text(temperature=1e-5).params.temperature == 1e-5


def test_null_means_the_default_everywhere() -> None:
    fields = [
        "model",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
    ]
    fields += ["stop", "stop_token_ids", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens"]
    fields += ["stream", "stream_options", "n", "best_of", "logprobs", "top_logprobs", "presence_penalty"]
    fields += ["frequency_penalty", "logit_bias", "user", "metadata", "store", "chat_template_kwargs"]
    fields += ["add_generation_prompt", "return_token_ids", "response_format"]
    assert chat(**dict.fromkeys(fields)) == chat()


def test_the_only_supported_values_may_be_given() -> None:
    job = chat(
        model="tiny",
        n=1,
        logprobs=False,
        top_logprobs=0,
        presence_penalty=0,
        frequency_penalty=0.0,
        repetition_penalty=1,
        logit_bias={},
        use_beam_search=False,
        length_penalty=1,
        early_stopping=False,
        tools=[],
        tool_choice="none",
        guided_json=None,
        user="me",
        metadata={"a": "b"},
        store=False,
        response_format={"type": "text"},
    )
    assert job == chat()
    assert text(echo=False, suffix="") == text()


def test_form_and_template_fields_arrive() -> None:
    job = chat(
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        return_token_ids=True,
        return_tokens_as_token_ids=True,
        chat_template_kwargs={"thinking": False},
        reasoning_effort="low",
        documents=[{"text": "x"}],
        add_generation_prompt=False,
        add_special_tokens=True,
        priority=-3,
        timeout=2.5,
        request_id="mine",
    )
    assert job == Job(
        params=SamplingParams(),
        messages=[TURN],
        template_kwargs={"thinking": False, "reasoning_effort": "low", "documents": [{"text": "x"}]},
        add_generation_prompt=False,
        add_special_tokens=True,
        stream=True,
        include_usage=True,
        continuous_usage=True,
        return_token_ids=True,
        tokens_as_ids=True,
        priority=-3,
        timeout=2.5,
        request_id="mine",
    )


def test_continuing_a_message_opens_no_new_one() -> None:
    job = chat(continue_final_message=True)
    assert (job.continue_final_message, job.add_generation_prompt) == (True, False)
    assert chat(continue_final_message=True, add_generation_prompt=False) == job


def test_rid_is_sglangs_request_id() -> None:
    assert text(rid="a") == text(request_id="a") == text(rid="a", request_id="a")


def test_max_completion_tokens_is_max_tokens() -> None:
    assert chat(max_completion_tokens=3).params.max_tokens == 3
    assert chat(max_completion_tokens=3, max_tokens=3).params.max_tokens == 3
    assert fault_of(chat, max_completion_tokens=3, max_tokens=4).param == "max_tokens"


def test_text_parts_are_joined_and_names_kept() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    job = chat(messages=[{"role": "user", "content": parts, "name": "Ann"}])
    assert job.messages == [{"role": "user", "content": "a\nb", "name": "Ann"}]


def test_a_developer_is_a_system_to_the_template() -> None:
    assert chat(messages=[{"role": "developer", "content": "Be brief."}]).messages == [
        {"role": "system", "content": "Be brief."}
    ]


def test_an_answer_of_openais_may_be_sent_back_as_it_is() -> None:
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "annotations": [],
        "tool_calls": None,
    }
    assert chat(messages=[answer]).messages == [{"role": "assistant", "content": "Hi"}]


@pytest.mark.parametrize(
    ("prompt", "taken"),
    [
        ("Hi", ("Hi",)),
        ("", ("",)),
        (["Hi"], ("Hi",)),
        (["Hi", "Ho"], ("Hi", "Ho")),
        ([1, 2], ([1, 2],)),
        ([7], ([7],)),
        ([[1, 2]], ([1, 2],)),
        ([[1, 2], [3]], ([1, 2], [3])),
        ([[1, 2], "Hi"], ([1, 2], "Hi")),
    ],
)
def test_prompts_are_text_or_ids_alone_or_in_a_list(prompt: Any, taken: Any) -> None:
    assert text(prompt=prompt).prompts == taken


@pytest.mark.parametrize("stop", ["end", ["end"]])
def test_stop_is_a_string_or_a_list(stop: Any) -> None:
    assert text(stop=stop).params.stop == ("end",)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 1.0}, "max_tokens"),
        ({"max_tokens": "1"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"seed": 2**64}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [1.5]}, "stop_token_ids[0]"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"chunks": 1}}, "stream_options.chunks"),
        ({"n": 0}, "n"),
        ({"n": 65}, "n"),
        ({"best_of": 65}, "best_of"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 101}, "repetition_penalty"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"-5": 1}}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
        ({"stop_token_ids": list(range(1025))}, "stop_token_ids"),
        ({"bad_words": ["x"] * 129}, "bad_words"),
        ({"allowed_token_ids": list(range(1025))}, "allowed_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids[0]"),
        ({"bad_words": [""]}, "bad_words[0]"),
        ({"bad_words": "x"}, "bad_words"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 3, "max_tokens": 2}, "min_tokens"),
        ({"min_tokens": 1, "max_tokens": 0}, "min_tokens"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"length_penalty": 0.5}, "length_penalty"),
        ({"early_stopping": True}, "early_stopping"),
        ({"early_stopping": "soon", "use_beam_search": True}, "early_stopping"),
        ({"temperature": 0.5, "use_beam_search": True}, "temperature"),
        ({"top_k": 5, "use_beam_search": True}, "top_k"),
        ({"presence_penalty": 1, "use_beam_search": True}, "presence_penalty"),
        ({"max_tokens": 0, "use_beam_search": True}, "max_tokens"),
        ({"priority": 2**31}, "priority"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"request_id": ""}, "request_id"),
        ({"request_id": "x" * 257}, "request_id"),
        ({"request_id": "a", "rid": "b"}, "rid"),
        (
            {"stream": True, "stream_options": {"continuous_usage_stats": 1}},
            "stream_options.continuous_usage_stats",
        ),
        ({"guided_json": {}}, "guided_json"),
        ({"regex": ".*"}, "regex"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"no_stop_trim": True}, "no_stop_trim"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    for read in (chat, text):
        fault = fault_of(read, **fields)
        assert (fault.status, fault.type, fault.param) == (400, "invalid_request_error", param)
        assert param.split(".")[-1] in fault.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [TURN, {"role": "king", "content": "Hi"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "Hi", "mood": 1}]}, "messages[0].mood"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{**TURN, "tool_calls": [{}]}]}, "messages[0].tool_calls"),
        ({"logprobs": 5}, "logprobs"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"store": True}, "store"),
        ({"chat_template": "{{ x }}"}, "chat_template"),
        ({"chat_template_kwargs": {"n": 2**70}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        ({"documents": [{"n": 2**70}]}, "chat_template_kwargs"),
        ({"prompt": "Hi"}, "prompt"),
        ({"tools": [{}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_a_wrong_chat_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    fault = fault_of(chat, **fields)
    assert (fault.status, fault.param) == (400, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [[1], []]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [[1], 2]}, "prompt"),
        ({"prompt": ["a"] * 65, "n": 64}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [2**80]}, "prompt"),
        ({"prompt": [1.5]}, "prompt[0]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": 5}, "prompt"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"suffix": "end"}, "suffix"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
    ],
)
def test_a_wrong_completion_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    fault = fault_of(text, **fields)
    assert (fault.status, fault.param) == (400, param)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"prompt": "Hi"} x',
        b'{"prompt": "Hi", "temperature": NaN}',
        b'{"prompt": "Hi", "temperature": Infinity}',
        b'{"prompt": "Hi", "temperature": -Infinity}',
        b'{"prompt": "Hi", "temperature": 1e999}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "\\udc00 x"}',
        b'{"prompt": "\xff"}',
        b'{"prompt": ' + b"[" * 100_000,
        b'{"logit_bias": ' + b'{"a":' * 100_000,
    ],
)
def test_what_is_no_valid_body_is_refused(body: bytes) -> None:
    for read in (intake.text, intake.chat, intake.either):
        assert fault_of(read, body).status == 400


def test_unsupported_values_are_refused_with_the_supported_one() -> None:
    assert fault_of(chat, store=True).message == "store: only null or false is supported."
    assert fault_of(chat, guided_json={}).message == "guided_json: this is not supported; leave it out."


def test_unknown_fields_are_left_out_where_the_server_is_told_so() -> None:
    lenient = Intake("tiny", lenient=True)
    body = {"messages": [{**TURN, "mood": 1}], "color": "red", "stream_options": {"x": 1}, "stream": True}
    assert lenient.chat(json.dumps(body).encode()) == chat(stream=True)
    assert fault_of(lenient.text, b'{"prompt": "Hi", "n": 0, "color": 1}').param == "n"


def test_an_unknown_model_is_not_found() -> None:
    fault = fault_of(chat, model="huge")
    assert (fault.status, fault.param, fault.code) == (404, "model", "model_not_found")


def test_either_tells_chats_from_completions_and_streams_by_default() -> None:
    assert intake.either(b'{"messages": [{"role": "user", "content": "Hi"}]}') == chat(stream=True)
    assert intake.either(b'{"prompt": "Hi", "max_tokens": 16}') == text(stream=True)
    assert intake.either(b'{"prompt": "Hi", "stream": false, "max_tokens": 16}') == text()
    for data in (b"{}", b'{"prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}]}'):
        fault = fault_of(intake.either, data)
        assert (fault.message, fault.param) == ("Give either messages, as to a chat, or a prompt.", "prompt")
