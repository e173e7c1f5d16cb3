from array import array

import pytest

from stretto.roles.detokenizer.stream import Stream
from stretto.roles.messages import End, Event, Fault, Open, Output, Usage


def ids(*values):
    return array("i", values).tobytes()


@pytest.fixture
def make(byte_level, scheme):
    def make(stop=(), include_stop=False, **output):
        output = Output(0, True, stop, include_stop, **output)
        return Stream(Open(7, 3, output), scheme(byte_level).begin((), True))

    return make


def push(stream, data):
    """Push one token per byte; the stop string found with the last one."""
    stops = [stream.push(byte) for byte in data]
    assert stops[:-1] == [None] * (len(stops) - 1)
    return stops[-1]


def test_events_carry_what_became_certain_since_the_last(make):
    stream = make()
    push(stream, b"ab")
    assert stream.progress() == Event(7, 0, "ab", ids(97, 98))
    push(stream, b"c")
    assert stream.progress() == Event(7, 2, "c", ids(99))


def test_ids_without_text_wait_for_the_next_text(make):
    stream = make()
    assert stream.progress() is None
    push(stream, "é".encode()[:1])
    assert stream.progress() is None
    push(stream, "é".encode()[1:])
    assert stream.progress() == Event(7, 0, "é", ids(0xC3, 0xA9))


def test_the_terminal_event_shows_what_was_held_back(make):
    stream = make(stop=("b!",))
    push(stream, b"ab\xc3")
    usage = Usage(3, 3, 2)
    assert stream.ended(End(7, "length", cached_tokens=2)) == Event(
        7, 0, "ab\ufffd", ids(97, 98, 0xC3), "length", None, usage
    )


@pytest.mark.parametrize(("wanted", "told"), [(True, ids(1, 2, 3)), (False, b"")])
def test_the_prompts_ids_come_with_the_terminal_event_where_asked_for(make, wanted, told):
    stream = make(prompt_ids=ids(1, 2, 3), return_prompt_ids=wanted)
    push(stream, b"a")
    assert stream.progress().prompt_ids == b""
    assert stream.ended(End(7, "length")).prompt_ids == told


def test_the_beginning_of_a_stop_string_is_shown_when_nothing_follows(make):
    stream = make(stop=("b!",))
    push(stream, b"ab")
    assert stream.ended(End(7, "length")).text == "ab"


def test_a_stop_string_ends_the_output_with_the_token_that_completes_it(make):
    stream = make(stop=("bc",))
    stream.cached = 1
    assert push(stream, b"ab") is None
    assert stream.progress() == Event(7, 0, "a", ids(97, 98))
    assert push(stream, b"c") == "bc"
    assert stream.stopped("bc") == Event(7, 2, "", ids(99), "stop", "bc", Usage(3, 3, 1))


def test_a_stop_string_is_shown_where_asked_for(make):
    stream = make(stop=("bc",), include_stop=True)
    push(stream, b"abc")
    assert stream.stopped("bc").text == "abc"


def test_a_hidden_token_counts_but_is_not_shown(make):
    stream = make()
    push(stream, b"a")
    stream.hide(98)
    event = stream.ended(End(7, "stop", 98))
    assert event == Event(7, 0, "a", ids(97, 98), "stop", 98, Usage(3, 2, 0))


def test_the_models_own_end_has_no_stop_reason(make):
    stream = make()
    stream.hide(98)
    assert stream.ended(End(7, "stop", 98, silent=True)).stop_reason is None


def test_a_failure_carries_its_fault(make):
    fault = Fault(500, "broken")
    event = make().ended(End(7, "error", fault=fault))
    assert event == Event(7, 0, "", b"", "error", None, Usage(3, 0, 0), fault)


@pytest.mark.parametrize(("reason", "expected"), [("length", ("stop", "é")), ("abort", ("abort", None))])
def test_bytes_held_to_the_end_may_complete_a_stop_string(sentencepiece, scheme, reason, expected):
    opened = Open(7, 1, Output(0, True, ("é",)))
    stream = Stream(opened, scheme(sentencepiece).begin((), True))
    assert push(stream, b"\x61\xc3\xa9") is None
    event = stream.ended(End(7, reason))
    assert (event.text, event.finish_reason, event.stop_reason) == ("a", *expected)
