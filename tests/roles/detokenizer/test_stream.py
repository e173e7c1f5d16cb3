from array import array

import pytest

from stretto.roles.detokenizer.details import Details, wants_details
from stretto.roles.detokenizer.labels import Labels
from stretto.roles.detokenizer.stream import Stream
from stretto.roles.messages import (
    End,
    Event,
    Fault,
    Open,
    Output,
    PromptLogprobs,
    TokenInfo,
    TokenLogprobs,
    Usage,
)


def ids(*values):
    return array("i", values).tobytes()


@pytest.fixture
def make(byte_level, scheme):
    def make(stop=(), include_stop=False, **output):
        opened = Open(7, 3, Output(0, True, stop, include_stop, **output))
        chosen = scheme(byte_level)
        details = Details(opened, chosen, Labels(chosen.raw)) if wants_details(opened.output) else None
        context = memoryview(opened.output.context_ids).cast("i")
        return Stream(opened, chosen.begin(context, True), details)

    return make


def push(stream, data):
    """Push one token per byte; the stop string found with the last one."""
    stops = [stream.push(byte) for byte in data]
    assert stops[:-1] == [None] * (len(stops) - 1)
    return stops[-1]


def test_events_carry_what_became_certain_since_the_last_and_the_first_the_counts(make):
    stream = make()
    stream.cached = 1
    push(stream, b"ab")
    assert stream.progress() == Event(7, 0, "ab", ids(97, 98), usage=Usage(3, 2, 1))
    push(stream, b"c")
    assert stream.progress() == Event(7, 2, "c", ids(99), offset=2)


def test_ids_without_text_wait_for_the_next_text(make):
    stream = make()
    assert stream.progress() is None
    push(stream, "é".encode()[:1])
    assert stream.progress() is None
    push(stream, "é".encode()[1:])
    assert stream.progress() == Event(7, 0, "é", ids(0xC3, 0xA9), usage=Usage(3, 2))


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
    assert stream.progress() == Event(7, 0, "a", ids(97, 98), usage=Usage(3, 2, 1))
    assert push(stream, b"c") == "bc"
    assert stream.stopped("bc") == Event(7, 2, "", ids(99), "stop", "bc", Usage(3, 3, 1), offset=1)


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


def push_scored(stream, data):
    """Push one token per byte, each of log-probability -0.5."""
    for byte in data:
        stream.scored(byte, TokenLogprobs(7, -0.5, 1))
        stop = stream.push(byte)
    return stop


def infos(data):
    return [TokenInfo(byte, chr(byte), bytes([byte]), -0.5, 1, []) for byte in data]


def test_log_probabilities_come_with_their_tokens_and_their_sum_at_the_end(make):
    stream = make(logprobs=0)
    push_scored(stream, b"ab")
    assert stream.progress() == Event(7, 0, "ab", ids(97, 98), usage=Usage(3, 2), logprobs=infos(b"ab"))
    stream.scored(99, TokenLogprobs(7, -0.5, 1))
    stream.hide(99)
    assert stream.ended(End(7, "stop", 99)) == Event(
        7, 2, "", ids(99), "stop", 99, Usage(3, 3), logprobs=infos(b"c"), cumulative_logprob=-1.5, offset=2
    )


def test_the_sum_is_told_where_it_alone_was_asked_for(make):
    stream = make()
    push_scored(stream, b"ab")
    event = stream.ended(End(7, "length"))
    assert (event.logprobs, event.cumulative_logprob) == ([], -1.0)


def test_a_stop_inside_a_token_cuts_the_text_alone(byte_level, scheme):
    chosen = scheme(byte_level)
    opened = Open(7, 3, Output(0, True, ("b",), logprobs=0))
    stream = Stream(opened, chosen.begin((), True), Details(opened, chosen, Labels(chosen.raw)))
    push_scored(stream, b"a")
    token = byte_level.token_to_id("Ġab")
    stream.scored(token, TokenLogprobs(7, -2.0, 4))
    assert stream.push(token) == "b"
    told = [*infos(b"a"), TokenInfo(token, " ab", b" ab", -2.0, 4, [])]
    assert stream.stopped("b") == Event(
        7, 0, "a a", ids(97, token), "stop", "b", Usage(3, 2), logprobs=told, cumulative_logprob=-2.5
    )


@pytest.mark.parametrize(
    ("min_tokens", "text", "tokens"), [(0, "", 3), (2, "", 3), (3, "abc", 6), (5, "abc", 6)]
)
def test_a_stop_string_counts_only_where_it_ends_after_min_tokens(make, min_tokens, text, tokens):
    stream = make(stop=("abc",), min_tokens=min_tokens)
    push(stream, b"abcabc"[:tokens])
    event = stream.stopped("abc")
    assert (event.text, event.usage.completion_tokens) == (text, tokens)


def test_bytes_held_to_the_end_complete_no_stop_string_before_min_tokens(sentencepiece, scheme):
    opened = Open(7, 1, Output(0, True, ("é",), min_tokens=2))
    stream = Stream(opened, scheme(sentencepiece).begin((), True))
    push(stream, "é".encode())
    event = stream.ended(End(7, "length"))
    assert (event.text, event.finish_reason) == ("é", "length")


def test_the_first_event_tells_of_the_prompt(make):
    stream = make(echo=True, prompt_logprobs=0, prompt_ids=ids(97, 98, 99))
    stream.prompt_scored(PromptLogprobs(7, 1, bytes(8), ids(1, 1)))
    push(stream, b"x")
    first = stream.progress()
    assert (first.prompt_text, [info and info.token for info in first.prompt_logprobs]) == (
        "abc", [None, "b", "c"],
    )  # fmt: skip
    push(stream, b"y")
    assert stream.progress() == Event(7, 1, "y", ids(121), offset=1)


def test_a_request_of_no_tokens_tells_of_its_prompt_in_its_only_event(make):
    stream = make(echo=True, prompt_logprobs=0, logprobs=0, prompt_ids=ids(97, 98, 99), prompt_text="abc")
    stream.prompt_scored(PromptLogprobs(7, 1, bytes(8), ids(1, 1)))
    event = stream.ended(End(7, "length"))
    assert (event.text, event.prompt_text, len(event.prompt_logprobs)) == ("", "abc", 3)
    assert (event.finish_reason, event.usage, event.logprobs) == ("length", Usage(3, 0), [])


@pytest.mark.parametrize(
    ("data", "shown"), [(b"\x98\x80!", ("ab", "😀!")), (b"!", ("ab\ufffd", "!")), (b"", ("ab\ufffd", ""))]
)
def test_a_character_begun_in_the_prompt_is_echoed_once(make, data, shown):
    prompt = ids(97, 98, 0xF0, 0x9F)
    stream = make(echo=True, prompt_ids=prompt, context_ids=prompt)
    for byte in data:
        stream.push(byte)
    event = stream.ended(End(7, "length"))
    assert (event.prompt_text, event.text) == shown


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_what_was_held_back_is_shown_however_it_ends(make, reason):
    stream = make(stop=("bcd",), logprobs=0)
    push_scored(stream, b"abc")
    event = stream.ended(End(7, reason, fault=Fault(408, "late")))
    assert (event.text, event.finish_reason, event.usage) == ("abc", reason, Usage(3, 3))
    assert event.logprobs == infos(b"abc")
