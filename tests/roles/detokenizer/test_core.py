from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.roles.detokenizer.core import Core
from stretto.roles.messages import (
    Alternative,
    End,
    Event,
    Open,
    Output,
    PromptLogprobs,
    TokenInfo,
    TokenLogprobs,
    Tokens,
    Usage,
)


def ids(*values):
    return array("i", values).tobytes()


def step(opens=(), tokens=(), ends=(), hits=(), logprobs=(), prompt=()):
    """`tokens`: (uid, token, index)."""
    uids, values, indices = zip(*tokens, strict=True) if tokens else ((), (), ())
    buffers = array("q", uids).tobytes(), ids(*values), ids(*indices)
    return Tokens(list(opens), *buffers, list(ends), list(logprobs), list(prompt), list(hits))


def opened(uid, gateway=0, stream=True, **output):
    return Open(uid, 2, Output(gateway, stream, **output))


@pytest.fixture
def core(byte_level, scheme):
    return Core(scheme(byte_level))


def events(core, *messages):
    for message in messages:
        core.feed(message)
    return core.take().events


def test_a_turn_brings_one_event_per_streaming_request_by_gateway(core):
    first = step([opened(1), opened(2, gateway=3)], [(1, 97, 0), (2, 98, 0)])
    second = step(tokens=[(2, 99, 1)])
    assert events(core, first, second) == {
        0: [Event(1, 0, "a", ids(97), usage=Usage(2, 1))],
        3: [Event(2, 0, "bc", ids(98, 99), usage=Usage(2, 2))],
    }
    assert events(core) == {}
    assert events(core, step(tokens=[(1, 98, 1)])) == {0: [Event(1, 1, "b", ids(98))]}


def test_progress_and_end_in_one_turn_are_one_event(core):
    found = events(core, step([opened(1)], [(1, 97, 0)]), step(tokens=[(1, 98, 1)], ends=[End(1, "length")]))
    assert found == {0: [Event(1, 0, "ab", ids(97, 98), "length", None, Usage(2, 2, 0))]}
    assert len(core) == 0


def test_a_request_that_does_not_stream_gets_one_event_with_everything(core):
    assert events(core, step([opened(1, stream=False)], [(1, 97, 0)])) == {}
    assert events(core, step(tokens=[(1, 98, 1)])) == {}
    found = events(core, step(ends=[End(1, "length", cached_tokens=1)]))
    assert found == {0: [Event(1, 0, "ab", ids(97, 98), "length", None, Usage(2, 2, 1))]}


def test_a_request_may_end_before_its_first_token(core):
    found = events(core, step([opened(1)], ends=[End(1, "abort")]))
    assert found == {0: [Event(1, 0, "", b"", "abort", None, Usage(2, 0, 0))]}


@pytest.mark.parametrize(("include_stop", "text"), [(False, "a"), (True, "ab")])
def test_a_stop_token_is_shown_only_where_asked_for(core, include_stop, text):
    core.feed(step([opened(1, include_stop=include_stop)], [(1, 97, 0)]))
    core.feed(step(tokens=[(1, 98, 1)], ends=[End(1, "stop", 98)]))
    assert core.take().events == {0: [Event(1, 0, text, ids(97, 98), "stop", 98, Usage(2, 2, 0))]}


def test_a_stop_string_ends_the_request_at_once_and_whatever_follows_is_dropped(core):
    core.feed(step([opened(1, stop=("b",)), opened(2)], [(1, 97, 0), (2, 97, 0)], hits=[(1, 1), (9, 1)]))
    core.feed(step(tokens=[(1, 98, 1), (2, 98, 1)]))
    turn = core.take()
    assert turn.stopped == [1]
    assert turn.events == {
        0: [
            Event(1, 0, "a", ids(97, 98), "stop", "b", Usage(2, 2, 1)),
            Event(2, 0, "ab", ids(97, 98), usage=Usage(2, 2)),
        ]
    }
    assert len(core) == 1
    core.feed(step(tokens=[(1, 99, 2)], ends=[End(1, "length")]))
    late = core.take()
    assert (late.events, late.stopped) == ({}, [])


def test_repeated_tokens_are_dropped_and_a_missing_one_is_an_error(core):
    core.feed(step([opened(1)], [(1, 97, 0)]))
    core.feed(step(tokens=[(1, 97, 0)]))
    found = events(core, step(tokens=[(1, 98, 1)]))
    assert found == {0: [Event(1, 0, "ab", ids(97, 98), usage=Usage(2, 2))]}
    with pytest.raises(RuntimeError, match="token 3 of request 1 came when 2 was due"):
        core.feed(step(tokens=[(1, 99, 3)]))


def test_clearing_forgets_everything_silently(core):
    core.feed(step([opened(1), opened(2, stop=("a",))], [(1, 97, 0), (2, 97, 0)]))
    core.clear()
    turn = core.take()
    assert (len(core), turn.events, turn.stopped) == (0, {}, [])


def test_the_prompts_last_ids_and_special_tokens_are_respected(core, byte_level):
    start = byte_level.token_to_id("<s>")
    core.feed(step([opened(1, context_ids=ids(0xF0, 0x9F)), opened(2, skip_special=False)]))
    core.feed(step(tokens=[(1, 0x98, 0), (2, start, 0)]))
    core.feed(step(tokens=[(1, 0x80, 1), (2, 97, 1)]))
    assert [event.text for event in core.take().events[0]] == ["😀", "<s>a"]


def scores(uid, logprob, *top):
    return TokenLogprobs(uid, logprob, 1, ids(*top), array("f", [-1.0] * len(top)).tobytes())


def test_each_request_gets_the_log_probabilities_it_asked_for(core):
    opens = [opened(1, logprobs=1), opened(2), opened(3, logprobs=0)]
    tokens = [(1, 97, 0), (2, 97, 0), (3, 98, 0)]
    (first, second, third) = events(
        core, step(opens, tokens, logprobs=[scores(1, -0.5, 98), scores(3, -0.25)])
    )[0]
    assert first.logprobs == [TokenInfo(97, "a", b"a", -0.5, 1, [Alternative(98, "b", b"b", -1.0)])]
    assert second == Event(2, 0, "a", ids(97), usage=Usage(2, 1))
    assert third.logprobs == [TokenInfo(98, "b", b"b", -0.25, 1, [])]


def test_repeated_and_late_log_probabilities_are_dropped_with_their_tokens(core):
    core.feed(step([opened(1, logprobs=0, stop=("b",))], [(1, 97, 0)], logprobs=[scores(1, -0.5)]))
    core.feed(step(tokens=[(1, 97, 0)], logprobs=[scores(1, -0.5)]))
    core.feed(step(tokens=[(1, 98, 1)], logprobs=[scores(1, -0.25)]))
    core.feed(step(tokens=[(1, 99, 2)], logprobs=[scores(1, -9.0)]))
    (event,) = core.take().events[0]
    assert [info.logprob for info in event.logprobs] == [-0.5, -0.25]
    assert (event.text, event.usage.completion_tokens, event.cumulative_logprob) == ("a", 2, -0.75)


def test_a_hidden_stop_token_has_its_log_probability_too(core):
    end = End(1, "stop", 98, silent=True)
    (event,) = events(core, step([opened(1, logprobs=0)], [(1, 98, 0)], [end], logprobs=[scores(1, -0.5)]))[0]
    assert (event.text, event.token_ids, [info.id for info in event.logprobs]) == ("", ids(98), [98])


def test_what_the_prompt_scored_may_come_before_with_or_after_the_opening(core):
    part = PromptLogprobs(1, 1, array("f", [-0.5]).tobytes(), ids(3))
    core.feed(step(prompt=[part]))
    core.feed(step([opened(1, prompt_ids=ids(97, 98), prompt_logprobs=0)], prompt=[part]))
    (event,) = events(core, step(tokens=[(1, 99, 0)], prompt=[part]))[0]
    assert event.prompt_logprobs == [None, TokenInfo(98, "b", b"b", -0.5, 3, [])]


@given(data=st.data())
def test_streamed_and_whole_answers_agree_however_turns_fall(scheme, byte_level, data):
    tokens = data.draw(st.lists(st.integers(0, 261), max_size=20))
    stop = data.draw(st.lists(st.sampled_from(["ab", "b", "é", "\ufffd"]), max_size=2).map(tuple))
    takes = data.draw(st.sets(st.integers(0, 20)))
    core = Core(scheme(byte_level))
    min_tokens = data.draw(st.integers(0, 5))
    output = {"stop": stop, "logprobs": 1, "min_tokens": min_tokens}
    core.feed(step([opened(1, **output), opened(2, stream=False, **output)]))
    seen = {1: [], 2: []}

    def take():
        for event in core.take().events.get(0, []):
            seen[event.uid].append(event)

    for index, token in enumerate(tokens):
        found = [scores(uid, -float(index), token, index) for uid in (1, 2)]
        core.feed(step(tokens=[(1, token, index), (2, token, index)], logprobs=found))
        if index in takes:
            take()
    core.feed(step(ends=[End(1, "length"), End(2, "length")]))
    take()
    (whole,) = seen[2]
    assert "".join(event.text for event in seen[1]) == whole.text
    assert b"".join(event.token_ids for event in seen[1]) == whole.token_ids
    assert all(event.finish_reason is None for event in seen[1][:-1])
    last = seen[1][-1]
    assert (last.finish_reason, last.stop_reason, last.usage) == (
        whole.finish_reason, whole.stop_reason, whole.usage,
    )  # fmt: skip
    assert [info for event in seen[1] for info in event.logprobs] == whole.logprobs
    assert all(len(event.logprobs) == len(event.token_ids) // 4 for event in seen[1])
    assert last.cumulative_logprob == whole.cumulative_logprob == sum(info.logprob for info in whole.logprobs)
    assert whole.usage.completion_tokens == len(whole.logprobs)
    counts = [len(event.token_ids) // 4 for event in seen[1]]
    assert [event.index for event in seen[1]] == [sum(counts[:i]) for i in range(len(counts))]
    assert len(core) == 0
