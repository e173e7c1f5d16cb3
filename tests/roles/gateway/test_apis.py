"""Every parameter by OpenAI's own client, streamed and whole, against a back end that answers all."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import openai
import pytest

from stretto.roles.gateway.apis import ChatAnswer, TextAnswer, answer_to
from stretto.roles.gateway.faults import INTERNAL, POISON
from stretto.roles.gateway.job import Job
from stretto.roles.messages import Event, Events, Fault, SamplingParams, Submit, ToGateway
from stretto.tests.roles.gateway.house import MODEL, PATIENCE, House, chorus

OPENED: Any = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "We"}]


@pytest.fixture
def client(house: House) -> openai.OpenAI:
    house.back.script = chorus
    return openai.OpenAI(base_url=f"{house.url}/v1", api_key="any", max_retries=0, timeout=PATIENCE)


def text(client: openai.OpenAI, **fields: Any) -> Any:
    return client.completions.create(model=MODEL, **{"prompt": "He", **fields})


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(model=MODEL, **{"messages": OPENED[:1], **fields})


def assembled(chunks: Any) -> dict[str, Any]:
    """The whole answer that a stream's chunks add up to, with what both forms have."""
    choices: dict[int, dict[str, Any]] = defaultdict(lambda: {"text": "", "ends": []})
    answer: dict[str, Any] = {}
    for chunk in chunks:
        answer |= {key: value for key, value in chunk.model_extra.items() if key.startswith("prompt_")}
        answer |= {"id": chunk.id, "usage": chunk.usage}
        for part in chunk.choices:
            choice = choices[part.index]
            choice["text"] += (part.text if hasattr(part, "text") else part.delta.content) or ""
            for key, value in part.model_extra.items():
                if key == "token_ids":
                    choice[key] = choice.get(key, []) + value
                elif key.startswith("prompt_"):
                    choice[key] = value
            for key, value in part.logprobs.model_dump().items() if part.logprobs else ():
                known = choice.setdefault("logprobs", {}).get(key)
                choice["logprobs"][key] = known + value if known and value else known or value
            if part.finish_reason:
                choice["ends"].append(part.finish_reason)
    return answer | {"choices": [choices[i] for i in range(len(choices))]}


def whole(answer: Any) -> dict[str, Any]:
    """The same of an answer that was not streamed; a stream has no empty lists."""
    choices = []
    for i, part in enumerate(answer.choices):
        assert part.index == i
        choice = {"text": part.text if hasattr(part, "text") else part.message.content}
        choice["ends"] = [part.finish_reason]
        extra = {key: value for key, value in part.model_extra.items() if key != "stop_reason"}
        lists = part.logprobs.model_dump() if part.logprobs else {}
        choice |= extra | ({"logprobs": lists} if any(lists.values()) else {})
        choices.append(choice)
    answer_extra = {key: value for key, value in answer.model_extra.items() if key.startswith("prompt_")}
    return {**answer_extra, "id": answer.id, "usage": answer.usage, "choices": choices}


FORMS: list[dict[str, Any]] = [
    {},
    {"n": 3},
    {"n": 2, "best_of": 2, "seed": 5},
    {"extra_body": {"prompt_logprobs": 2, "return_token_ids": True}, "n": 2},
    {"extra_body": {"return_tokens_as_token_ids": True}},
    {"extra_body": {"use_beam_search": True, "best_of": 4, "length_penalty": 0.5}, "n": 2},
    {"max_tokens": 0},
]
LOGPROBS: list[dict[str, Any]] = [{}, {"logprobs": 0}, {"logprobs": 3}]


@pytest.mark.parametrize("logprobs", LOGPROBS)
@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("prompt", ["He", ["He", [1, 2]]])
def test_a_streamed_completion_adds_up_to_the_whole_one(
    client: openai.OpenAI, form: dict[str, Any], logprobs: dict[str, Any], echo: bool, prompt: Any
) -> None:
    fields = {**form, **logprobs, "echo": echo, "prompt": prompt}
    fields["extra_body"] = {**form.get("extra_body", {}), "request_id": "mine"}
    stream = text(client, stream=True, stream_options={"include_usage": True}, **fields)
    assert assembled(stream) == whole(text(client, **fields))


@pytest.mark.parametrize("logprobs", [{}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 2}])
@pytest.mark.parametrize("form", FORMS)
def test_a_streamed_chat_adds_up_to_the_whole_one(
    client: openai.OpenAI, form: dict[str, Any], logprobs: dict[str, Any]
) -> None:
    extra = {"best_of": form["best_of"]} if "best_of" in form else {}
    fields = {**form, **logprobs}
    fields.pop("best_of", None)
    fields["extra_body"] = {**form.get("extra_body", {}), **extra, "request_id": "mine"}
    stream = chat(client, stream=True, stream_options={"include_usage": True}, **fields)
    assert assembled(stream) == whole(chat(client, **fields))


def test_each_choice_has_one_role_chunk_and_one_terminal_chunk(client: openai.OpenAI) -> None:
    chunks = list(chat(client, n=3, stream=True, stream_options={"include_usage": True}))
    roles = [c.choices[0].index for c in chunks if c.choices and c.choices[0].delta.role]
    ends = [c.choices[0].index for c in chunks if c.choices and c.choices[0].finish_reason]
    assert (roles, ends) == ([0, 1, 2], [0, 1, 2])
    assert [len(c.choices) for c in chunks] == [1] * 12 + [0]
    assert [c.usage for c in chunks[:-1]] == [None] * 12


def test_a_prompt_is_counted_once_and_its_first_sequence_says_what_was_cached(client: openai.OpenAI) -> None:
    usage = text(client, prompt=["He", "He"], n=3).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (4, 12, 16)
    assert usage.prompt_tokens_details.cached_tokens == 2


def test_choices_are_in_the_order_of_their_prompts(client: openai.OpenAI, house: House) -> None:
    answer = text(client, prompt=["a", [5], "c"], n=2)
    assert [choice.text for choice in answer.choices] == ["0ö", "1ö"] * 3
    submits = [house.submitted() for _ in range(3)]
    assert [submit.prompt for submit in submits] == ["a", [5], "c"]
    assert [submit.uid - submits[0].uid for submit in submits] == [0, 2, 4]


def test_the_best_of_many_are_returned_best_first(client: openai.OpenAI, house: House) -> None:
    answer = text(client, n=2, best_of=4, prompt=["He", "He"])
    assert [choice.text for choice in answer.choices] == ["3ö", "2ö"] * 2
    assert answer.usage.completion_tokens == 16
    assert not house.submitted().stream


def test_beams_come_as_the_first_choices(client: openai.OpenAI, house: House) -> None:
    answer = text(client, n=2, extra_body={"use_beam_search": True, "best_of": 4})
    assert [choice.text for choice in answer.choices] == ["0ö", "1ö"]
    assert answer.usage.completion_tokens == 4
    assert house.submitted().params == SamplingParams(n=2, best_of=4, use_beam_search=True, max_tokens=16)


def test_completions_have_the_older_form_of_logprobs(client: openai.OpenAI) -> None:
    logprobs = text(client, logprobs=2, echo=True).choices[0].logprobs
    assert logprobs.model_dump() == {
        "tokens": ["H", "e", "0", "ö"],
        "token_logprobs": [None, -0.5, -4.0, -0.25],
        "top_logprobs": [
            None,
            {"ö": -0.25, "bytes:\\xc3": -1.5, "e": -0.5},
            {"ö": -0.25, "bytes:\\xc3": -1.5, "0": -4.0},
            {"ö": -0.25, "bytes:\\xc3": -1.5},
        ],
        "text_offset": [0, 1, 2, 3],
    }


def test_scoring_a_prompt_generates_nothing(client: openai.OpenAI) -> None:
    choice = text(client, logprobs=1, echo=True, max_tokens=0).choices[0]
    assert (choice.text, choice.finish_reason) == ("He", "length")
    assert choice.logprobs.token_logprobs == [None, -0.5]
    assert choice.logprobs.top_logprobs == [None, {"ö": -0.25, "e": -0.5}]


def test_chats_have_bytes_and_as_many_alternatives_as_asked_for(client: openai.OpenAI) -> None:
    logprobs = chat(client, logprobs=True, top_logprobs=3).choices[0].logprobs
    alternatives = [
        {"token": "ö", "bytes": [0xC3, 0xB6], "logprob": -0.25},
        {"token": "\ufffd", "bytes": [0xC3], "logprob": -1.5},
        {"token": " z", "bytes": [32, 122], "logprob": -9999.0},
    ]
    first, second = logprobs.model_dump()["content"]
    assert first == {"token": "0", "bytes": [48], "logprob": -4.0, "top_logprobs": alternatives}
    assert second == {**alternatives[0], "top_logprobs": alternatives}
    assert chat(client, logprobs=True).choices[0].logprobs.content[0].top_logprobs == []


def test_prompt_logprobs_are_vllms(client: openai.OpenAI) -> None:
    extra = {"prompt_logprobs": 1}
    expected = [
        None,
        {
            "2": {"logprob": -0.5, "rank": 2, "decoded_token": "e"},
            "20": {"logprob": -0.25, "rank": 1, "decoded_token": "ö"},
        },
    ]
    assert text(client, extra_body=extra).choices[0].prompt_logprobs == expected
    assert chat(client, extra_body=extra).prompt_logprobs == expected


def test_echo_asks_for_more_of_the_prompt_than_it_shows_as_prompt_logprobs(client: openai.OpenAI) -> None:
    choice = text(client, logprobs=3, echo=True, extra_body={"prompt_logprobs": 0}).choices[0]
    assert list(choice.prompt_logprobs[1]) == ["2"]
    assert len(choice.logprobs.top_logprobs[1]) == 4


def test_a_chats_echo_begins_with_the_opened_message(client: openai.OpenAI, house: House) -> None:
    extra = {"echo": True, "continue_final_message": True, "add_generation_prompt": False}
    assert chat(client, messages=OPENED, extra_body=extra).choices[0].message.content == "We0ö"
    chunks = chat(client, messages=OPENED, extra_body=extra, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "We0ö"
    submit = house.submitted()
    assert (submit.continue_final_message, submit.add_generation_prompt, submit.echo) == (True, False, False)


def test_continuous_usage_counts_up_in_every_chunk(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(text(client, n=2, stream=True, stream_options=options))
    assert [c.usage.completion_tokens for c in chunks] == [1, 2, 3, 4, 4, 4, 4]
    assert {c.usage.prompt_tokens for c in chunks} == {2}
    role, *_ = chat(client, stream=True, stream_options=options)
    assert (role.usage.prompt_tokens, role.usage.completion_tokens) == (2, 0)
    *_, last = text(client, stream=True, stream_options={"continuous_usage_stats": True})
    assert (last.choices[0].finish_reason, last.usage.total_tokens) == ("length", 4)


def test_a_request_id_is_the_answers_and_may_be_used_again(client: openai.OpenAI) -> None:
    for _ in range(2):
        assert text(client, extra_body={"request_id": "mine"}).id == "mine"
        assert {chunk.id for chunk in chat(client, stream=True, extra_body={"rid": "mine"})} == {"mine"}


def test_every_field_of_openais_client_is_taken(client: openai.OpenAI, house: House) -> None:
    common: dict[str, Any] = {
        "frequency_penalty": 1,
        "presence_penalty": -1,
        "logit_bias": {"5": 3},
        "seed": 1,
    }
    common |= {"stop": ["x"], "temperature": 0.5, "top_p": 0.5, "user": "me", "n": 2}
    text(client, **common, best_of=3, echo=True, logprobs=1, max_tokens=5, suffix="")
    chat(client, **common, logprobs=True, top_logprobs=1, max_completion_tokens=5, metadata={"a": "b"},
         parallel_tool_calls=False, reasoning_effort="low", response_format={"type": "text"}, store=False,
         service_tier="auto", modalities=["text"], prompt_cache_key="k", safety_identifier="s")  # fmt: skip
    shared = SamplingParams(
        max_tokens=5,
        frequency_penalty=1.0,
        presence_penalty=-1.0,
        logit_bias={5: 3.0},
        seed=1,
        stop=("x",),
        temperature=0.5,
        top_p=0.5,
        n=2,
        logprobs=1,
    )
    first, second = house.submitted(), house.submitted()
    fields = {name: getattr(first.params, name) for name in first.params.__struct_fields__}
    assert SamplingParams(**{**fields, "best_of": None, "prompt_logprobs": None}) == shared
    assert second.params == shared
    assert second.template_kwargs == {"reasoning_effort": "low"}


def test_a_failing_choice_fails_the_request_and_cancels_the_others(
    client: openai.OpenAI, house: House
) -> None:
    fault = Fault(408, "too late", "timeout_error", code="timeout")

    def stumble(submit: Submit) -> list[ToGateway]:
        return [Events([Event(submit.uid + 1, 0, "", finish_reason="error", fault=fault)]), *chorus(submit)]

    house.back.script = stumble
    with pytest.raises(openai.APIStatusError) as caught:
        text(client, n=3)
    assert (caught.value.status_code, caught.value.code) == (408, "timeout")
    first = house.submitted().uid
    assert [house.cancelled(), house.cancelled()] == [first, first + 2]
    assert house.live == 0


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Fault(408, "too late", "timeout_error", code="timeout"), 1),
        (Fault(500, "bad luck", "server_error", code="nan_logits"), 1),
        (POISON, 1),
        (INTERNAL, 2),
    ],
)
def test_clients_send_again_only_what_may_end_better(house: House, fault: Fault, times: int) -> None:
    house.back.script = lambda submit: [
        Events([Event(submit.uid, 0, "", finish_reason="error", fault=fault)])
    ]
    with pytest.raises(openai.APIStatusError):
        text(openai.OpenAI(base_url=f"{house.url}/v1", api_key="any", max_retries=1, timeout=PATIENCE))
    assert house.back.submits.qsize() == times


def test_messages_make_a_chat() -> None:
    assert isinstance(answer_to(Job(params=SamplingParams(), prompts=("Hi",)), 1, "tiny"), TextAnswer)
    assert isinstance(answer_to(Job(params=SamplingParams(), messages=[]), 1, "tiny"), ChatAnswer)
