import msgspec
import pytest

from stretto.bench.answer import Answer, Usage
from stretto.bench.sse import Reader, message

STREAM = (
    b'data: {"choices":[{"index":0,"text":"Hi","token_ids":[5]}]}\n\n'
    b': a comment\r\n\r\ndata: {"choices":[{"index":0,"text":"","token_ids":[6]}]}\r\n\r\n'
    b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\n'
    b"data: [DONE]\n\n"
)


def test_a_stream_becomes_an_answer() -> None:
    answer = Answer()
    reader = Reader(answer)
    reader.feed(STREAM, now=4.0)
    assert (answer.pieces, answer.token_ids) == ([4.0, 4.0], [5, 6])
    assert (answer.usage, answer.error) == (Usage(3, 2), "")
    assert reader.complete


def test_events_may_come_in_any_parts() -> None:
    answer = Answer()
    reader = Reader(answer)
    for place in range(len(STREAM)):
        reader.feed(STREAM[place : place + 1], now=float(place))
    assert (answer.token_ids, answer.usage, reader.complete) == ([5, 6], Usage(3, 2), True)
    assert answer.pieces == [float(STREAM.index(b"\n")), float(STREAM.index(b"[6]}]}\r\n") + 7)]


def test_an_error_in_the_stream_is_the_answers() -> None:
    answer = Answer()
    Reader(answer).feed(b'data: {"error": {"message": "it broke", "code": 500}}\n\n', now=1.0)
    assert answer.error == "it broke"


def test_what_is_no_chunk_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        Reader(Answer()).feed(b"data: {nonsense}\n", now=1.0)


def test_a_refusals_message_is_found_if_there_is_one() -> None:
    assert message(b'{"error": {"message": "too long"}}') == "too long"
    assert message(b"<html>Bad gateway") == "<html>Bad gateway"
