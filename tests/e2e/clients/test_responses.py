"""OpenAI's Responses API with OpenAI's client."""

import openai
import pytest
from e2e.serving import MODEL

GREEDY = {
    "model": MODEL,
    "input": "What is the capital of France?",
    "temperature": 0,
    "max_output_tokens": 24,
}


def text_of(response):
    return response.output[0].content[0].text


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"instructions": "You are a pirate."},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Say hi."}]}]},
        {"max_output_tokens": 3, "top_logprobs": 2, "include": ["message.output_text.logprobs"]},
        {"metadata": {"colour": "red"}, "top_p": 0.9, "store": False},
    ],
)
def test_a_response_says_the_same_whole_and_streamed(client, fields):
    ask = GREEDY | fields
    whole = client.responses.create(**ask)
    events = list(client.responses.create(**ask, stream=True))
    final = events[-1].response
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(pieces) == text_of(final) == text_of(whole)
    assert final.status == whole.status
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.output[0].content[0].logprobs == whole.output[0].content[0].logprobs
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_events_come_in_their_order(client):
    kinds = [event.type.removeprefix("response.") for event in client.responses.create(**GREEDY, stream=True)]
    deltas = kinds.count("output_text.delta")
    assert deltas > 1
    assert kinds == [
        "created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * deltas,
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip


def test_a_short_one_is_incomplete(client):
    response = client.responses.create(**GREEDY | {"max_output_tokens": 2})
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 2


def test_it_is_kept_continued_and_deleted(client):
    first = client.responses.create(**GREEDY)
    assert text_of(client.responses.retrieve(first.id)) == text_of(first)
    second = client.responses.create(**GREEDY | {"input": "And of Italy?"}, previous_response_id=first.id)
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_one_in_the_background_is_cancelled(client, server):
    ask = GREEDY | {"input": "Count from one to ten thousand, in words.", "max_output_tokens": 4000}
    begun = client.responses.create(**ask, background=True)
    assert begun.status in ("queued", "in_progress")
    assert client.responses.cancel(begun.id).status == "cancelled"
    assert client.responses.retrieve(begun.id).status == "cancelled"
    assert server.complete("Once upon", max_tokens=1)["usage"]["completion_tokens"] == 1
