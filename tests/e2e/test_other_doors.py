"""The same "Paris" over the doors that are not OpenAI's completions."""

import anthropic
import httpx
import openai
import pytest

MODEL = "SmolLM2-135M-Instruct"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def http(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def post(http, path, **body):
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_anthropics_client_gets_and_streams_it(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="none")
    ask = {"model": MODEL, "max_tokens": 32, "messages": QUESTION, "extra_body": {"temperature": 0}}
    message = client.messages.create(**ask)
    assert "Paris" in message.content[0].text
    assert message.stop_reason == "end_turn"
    with client.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == message.content[0].text
    usage = message.usage
    counted = client.messages.count_tokens(model=MODEL, messages=QUESTION).input_tokens
    assert usage.input_tokens + usage.cache_read_input_tokens == counted


def test_an_answer_is_continued(http):
    begun = {"role": "assistant", "content": "The capital of France is"}
    body = {"model": MODEL, "max_tokens": 2, "temperature": 0, "messages": [*QUESTION, begun]}
    assert post(http, "/v1/messages", **body)["content"][0]["text"].startswith(" Paris")


def test_openais_responses_go_on(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    first = client.responses.create(
        model=MODEL, input=QUESTION[0]["content"], temperature=0, max_output_tokens=32
    )
    assert "Paris" in first.output_text
    ask = {"model": MODEL, "input": "And of Italy?", "temperature": 0, "max_output_tokens": 32}
    second = client.responses.create(**ask, previous_response_id=first.id)
    assert "Rome" in second.output_text
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens


def test_generate_continues_text_and_ids(http):
    text = "The capital of France is"
    ids = post(http, "/tokenize", prompt=text)["tokens"]
    greedy = {"temperature": 0, "max_new_tokens": 4}
    of_text = post(http, "/generate", text=text, sampling_params=greedy)
    of_ids = post(http, "/generate", input_ids=[ids, ids], sampling_params=greedy)
    assert of_text["text"].startswith(" Paris")
    assert [answer["output_ids"] for answer in of_ids] == [of_text["output_ids"]] * 2
    assert post(http, "/detokenize", tokens=of_text["output_ids"])["prompt"] == of_text["text"]


def test_a_request_is_aborted_by_its_id(http):
    body = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True, "request_id": "mine"}
    with http.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert post(http, "/abort", request_id="mine") == {"aborted": 1}
        assert '"finish_reason":"abort"' in [line for line in lines if line][-2]


def test_the_whole_path_is_proved_by_one_token(http):
    assert http.get("/health_generate").status_code == 200
