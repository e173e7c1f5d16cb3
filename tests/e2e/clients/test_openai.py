"""OpenAI's client: every parameter of the completion APIs, whole and streamed, says the same.

Answers are deterministic: greedy, or with a seed. What a parameter means is checked in `test_parameters`.
"""

import json

import httpx
import openai
import pytest
from e2e.clients.told import heard, of_prompt, told
from e2e.serving import MODEL

QUESTION = [{"role": "user", "content": "What is the capital of France? And of Italy?"}]
BEGUN = [*QUESTION, {"role": "assistant", "content": "The capital of Italy is"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": "red?"}]}]
PROMPT = "The three largest cities of the world are"
SEEDED = {"temperature": 1.0, "seed": 42}

BOTH = {
    "greedy": {},
    "temperature and top_p": {"temperature": 0.8, "top_p": 0.9, "seed": 1},
    "top_k and min_p": SEEDED | {"extra_body": {"top_k": 20, "min_p": 0.05}},
    "a temperature of 2": {"temperature": 2.0, "seed": 3},
    "a negative seed": {"temperature": 1.0, "seed": -(2**63)},
    "n": SEEDED | {"n": 3},
    "as many of best_of": SEEDED | {"n": 2, "extra_body": {"best_of": 2}},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": 2.0},
    "repetition_penalty": {"extra_body": {"repetition_penalty": 1.3}},
    "logit_bias": {"logit_bias": {"260": -100, "378": 4.5}},
    "allowed_token_ids": {"extra_body": {"allowed_token_ids": [260, 284, 28, 30, 7042]}},
    "bad_words": {"extra_body": {"bad_words": ["Paris", "the capital", "."]}},
    "stop": {"stop": ["is", " York"]},
    "include_stop_str_in_output": {"stop": "is", "extra_body": {"include_stop_str_in_output": True}},
    "stop_token_ids": {"extra_body": {"stop_token_ids": [314, 28, 30]}},
    "min_tokens": {"max_tokens": 12, "stop": ["is"], "extra_body": {"min_tokens": 9}},
    "ignore_eos": {"max_tokens": 24, "extra_body": {"ignore_eos": True}},
    "special tokens": {"max_tokens": 24, "extra_body": {"ignore_eos": True, "skip_special_tokens": False}},
    "max_tokens 1": {"max_tokens": 1},
    "max_tokens 0": {"max_tokens": 0},
    "prompt_logprobs": {"extra_body": {"prompt_logprobs": 2}},
    "priority, timeout, request_id": {"extra_body": {"priority": -3, "timeout": 600, "request_id": "again"}},
    "user": {"user": "somebody"},
    "no special tokens of the tokenizer": {"extra_body": {"add_special_tokens": False}},
    "beams": {"temperature": 1.0, "n": 2, "extra_body": {"use_beam_search": True, "best_of": 3}},
    "impatient beams": {
        "temperature": 1.0, "n": 2,
        "extra_body": {"use_beam_search": True, "length_penalty": 2.0, "early_stopping": True},
    },
}  # fmt: skip
CHAT = BOTH | {
    "logprobs": {"logprobs": True, "top_logprobs": 5},
    "logprobs alone": SEEDED | {"logprobs": True, "n": 2},
    "tokens as ids": {
        "logprobs": True, "top_logprobs": 2, "extra_body": {"return_tokens_as_token_ids": True}
    },
    "max_completion_tokens": {"max_tokens": None, "max_completion_tokens": 5},
    "parts": {"messages": PARTS},
    "echo": {"messages": BEGUN, "extra_body": {"echo": True, "continue_final_message": True}},
    "continue_final_message": {
        "messages": BEGUN, "extra_body": {"continue_final_message": True, "add_generation_prompt": False}
    },
    "add_generation_prompt": {"extra_body": {"add_generation_prompt": False}},
    "chat_template_kwargs": {"extra_body": {"chat_template_kwargs": {"shout": True}}},
}  # fmt: skip
TEXT = BOTH | {
    "logprobs": {"logprobs": 5},
    "logprobs alone": SEEDED | {"logprobs": 0, "n": 2},
    "tokens as ids": {"logprobs": 2, "echo": True, "extra_body": {"return_tokens_as_token_ids": True}},
    "token ids": {"prompt": [504, 3575, 282, 4649, 314]},
    "several texts": SEEDED | {"prompt": ["One,", "Two,"], "n": 2},
    "several lists of token ids": {"prompt": [[504, 3575], [504, 3575, 282, 4649]]},
    "echo": {"echo": True},
    "echo of several": SEEDED | {"echo": True, "prompt": ["One,", "東京 🙂"], "n": 2},
    "echo with logprobs": {"echo": True, "logprobs": 3},
    "echo with logprobs, to score": {"echo": True, "logprobs": 3, "max_tokens": 0},
    "emoji": {"prompt": "🙂 🙃", "logprobs": 2},
}


def arguments(base, fields):
    """Fields for the client; all answers come with token ids."""
    extra = {"return_token_ids": True} | fields.get("extra_body", {})
    return {"model": MODEL, "temperature": 0, "max_tokens": 8} | base | fields | {"extra_body": extra}


def agree(create, ask):
    """The choices of one request, which are the same whole and streamed; so is the usage."""
    whole = create(**ask)
    chunks = list(create(**ask, stream=True, stream_options={"include_usage": True}))
    choices = told(whole)
    assert heard(chunks) == choices
    assert of_prompt(chunks) == of_prompt([whole])
    assert chunks[-1].choices == []
    assert all(chunk.usage is None for chunk in chunks[:-1])
    last = chunks[-1].usage
    assert (last.prompt_tokens, last.completion_tokens) == (
        whole.usage.prompt_tokens, whole.usage.completion_tokens
    )  # fmt: skip
    assert sum(len(choice["token_ids"]) for choice in choices) == last.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1
    _framed(chunks, choices)
    return choices


def _framed(chunks, choices):
    """Each choice ends once, with its last chunk."""
    pieces = [choice for chunk in chunks for choice in chunk.choices]
    for index in range(len(choices)):
        own = [piece for piece in pieces if piece.index == index]
        assert [piece.finish_reason is not None for piece in own] == [False] * (len(own) - 1) + [True]
        if hasattr(own[0], "delta"):
            assert [piece.delta.role for piece in own] == ["assistant"] + [None] * (len(own) - 1)


@pytest.mark.parametrize("name", CHAT)
def test_a_chat_says_the_same_whole_and_streamed(client, name):
    choices = agree(client.chat.completions.create, arguments({"messages": QUESTION}, CHAT[name]))
    assert {choice["finish_reason"] for choice in choices} <= {"stop", "length"}


@pytest.mark.parametrize("name", TEXT)
def test_a_completion_says_the_same_whole_and_streamed(client, name):
    choices = agree(client.completions.create, arguments({"prompt": PROMPT}, TEXT[name]))
    assert {choice["finish_reason"] for choice in choices} <= {"stop", "length"}


def test_counts_that_come_with_every_chunk_grow_to_the_last(client):
    options = {"include_usage": True, "continuous_usage_stats": True}
    ask = arguments({"prompt": ["One,", "Two, three,"]}, {"stream": True, "stream_options": options})
    usages = [chunk.usage for chunk in client.completions.create(**ask)]
    counts = [usage.completion_tokens for usage in usages if usage is not None]
    assert len(counts) >= len(usages) - 2  # nothing is known before the first token of each prompt
    assert counts == sorted(counts)
    assert counts[-1] == 16


def test_a_stream_ends_with_done(server):
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 3, "stream": True}
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=None)
    lines = [line for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2][6:])["choices"][0]["finish_reason"] == "length"


def test_unknown_and_contradictory_fields_are_refused_by_name(client):
    for name, fields in {
        "colour": {"extra_body": {"colour": "red"}},
        "best_of": {"n": 3, "extra_body": {"best_of": 2}},
        "temperature": {"extra_body": {"use_beam_search": True, "temperature": 0.5}},
        "logit_bias": {"logit_bias": {"49152": 1}},
        "stop": {"stop": [""]},
    }.items():
        with pytest.raises(openai.BadRequestError, match=name):
            client.chat.completions.create(**arguments({"messages": QUESTION}, fields))


def test_a_deadline_ends_a_request_with_its_reason(client):
    ask = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4000}
    with pytest.raises(openai.APIStatusError) as caught:
        client.completions.create(**ask, extra_body={"ignore_eos": True, "timeout": 0.3})
    assert caught.value.status_code == 408
    assert caught.value.code == "timeout"


def test_a_deadline_ends_a_stream_with_an_error(client):
    ask = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4000, "stream": True}
    stream = client.completions.create(**ask, extra_body={"ignore_eos": True, "timeout": 1.0})
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert caught.value.code == "timeout"


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")
