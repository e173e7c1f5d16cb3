"""Anthropic's client, and that its answers are those of the other chats."""

import anthropic
import pytest
from e2e.serving import MODEL

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"model": MODEL, "messages": QUESTION, "max_tokens": 24, "extra_body": {"temperature": 0}}

FIELDS = {
    "greedy": {},
    "system": {"system": "You are a pirate."},
    "system in blocks": {
        "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": " brief."}]
    },
    "sampling": {"extra_body": {"temperature": 0.7, "top_p": 0.9, "top_k": 1}},
    "stop_sequences": {"stop_sequences": ["capital", "Paris"]},
    "max_tokens": {"max_tokens": 3},
    "metadata": {"metadata": {"user_id": "somebody"}},
    "blocks": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Say hi."}]}]},
    "several turns": {
        "messages": [
            *QUESTION,
            {"role": "assistant", "content": "Paris."},
            {"role": "user", "content": "Why?"},
        ]
    },
    "an answer begun": {"messages": [*QUESTION, {"role": "assistant", "content": "It is"}]},
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_a_message_says_the_same_whole_and_streamed(claude, name):
    ask = GREEDY | FIELDS[name]
    whole = claude.messages.create(**ask)
    with claude.messages.stream(**ask) as stream:
        pieces = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert [block.text for block in final.content] == [block.text for block in whole.content] == [pieces]
    assert (final.stop_reason, final.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_events_come_in_their_order(claude):
    with claude.messages.stream(**GREEDY) as stream:
        kinds = [event.type for event in stream if event.type != "text"]
    deltas = kinds.count("content_block_delta")
    assert deltas > 1
    assert kinds == [
        "message_start", "content_block_start", *["content_block_delta"] * deltas, "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip


def test_why_it_ended(claude):
    ended = claude.messages.create(**GREEDY)
    assert ended.stop_reason == "end_turn"
    cut = claude.messages.create(**GREEDY | {"max_tokens": 2})
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)
    stopped = claude.messages.create(**GREEDY, stop_sequences=["capital"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "capital")
    assert stopped.content[0].text == "The "


def test_it_says_what_the_other_chats_say(claude, client):
    message = claude.messages.create(**GREEDY)
    chat = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0, max_tokens=24)
    response = client.responses.create(model=MODEL, input=QUESTION, temperature=0, max_output_tokens=24)
    assert message.content[0].text == chat.choices[0].message.content == response.output_text
    assert message.usage.output_tokens == chat.usage.completion_tokens == response.usage.output_tokens
    counted = claude.messages.count_tokens(model=MODEL, messages=QUESTION).input_tokens
    assert counted == chat.usage.prompt_tokens == response.usage.input_tokens


def test_refusals_are_anthropics(claude):
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(**GREEDY | {"model": "nobody"})
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        claude.messages.create(**GREEDY | {"extra_body": {"temperature": 7}})
    with pytest.raises(anthropic.BadRequestError, match="colour"):
        claude.messages.create(**GREEDY | {"extra_body": {"colour": "red"}})
