"""What the README promises a newcomer: "Paris", over every door."""

import json

import openai
import pytest
import websockets.sync.client as ws

from stretto import Client, SamplingParams

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none")


def test_a_chat_answer_says_paris(client):
    answer = client.chat.completions.create(
        model="SmolLM2-135M-Instruct", messages=QUESTION, temperature=0, max_tokens=32
    )
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens <= 32


def test_a_streamed_chat_answer_is_the_same(client):
    ask = {"model": "SmolLM2-135M-Instruct", "messages": QUESTION, "temperature": 0, "max_tokens": 32}
    whole = client.chat.completions.create(**ask).choices[0].message.content
    chunks = list(client.chat.completions.create(**ask, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole
    assert [chunk.choices[0].finish_reason for chunk in chunks[-1:]] == ["stop"]
    assert len(chunks) > 3


def test_a_websocket_carries_the_answer(server):
    with ws.connect(server.url.replace("http", "ws") + "/v1/stream") as socket:
        request = {"messages": QUESTION, "temperature": 0, "max_tokens": 32}
        socket.send(json.dumps({"type": "generate", "id": "a", "request": request}))
        text, frame = "", {"type": "delta"}
        while frame["type"] == "delta":
            frame = json.loads(socket.recv())
            text += frame.get("text", "")
    assert frame["type"] == "done"
    assert frame["finish_reason"] == "stop"
    assert "Paris" in text


def test_our_own_client_streams_it(server):
    with Client(server.url) as client:
        deltas = client.stream(messages=QUESTION, params=SamplingParams(temperature=0, max_tokens=32))
        assert "Paris" in "".join(delta.text for delta in deltas)
