from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.roles.detokenizer.core import Core
from stretto.roles.detokenizer.retention import PATIENCE
from stretto.roles.messages import (
    Alternative,
    Attach,
    Attached,
    Detach,
    Detached,
    End,
    Event,
    Held,
    Keep,
    Open,
    Output,
    PromptLogprobs,
    Recall,
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
    assert events(core, step(tokens=[(1, 98, 1)])) == {0: [Event(1, 1, "b", ids(98), offset=1)]}


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
    chars = [len(event.text) for event in seen[1]]
    assert [event.offset for event in seen[1]] == [sum(chars[:i]) for i in range(len(chars))]
    assert len(core) == 0


# Deaths.


def kept(uid, size=1, **output):
    """An opening with the request to recall."""
    return Open(uid, 2, Output(0, True, **output), bytes([uid]) * size)


def test_a_new_scheduler_is_told_what_has_not_ended_and_could_be_kept(core):
    core.feed(step([kept(1), kept(2), kept(3), opened(4)], [(1, 97, 0), (2, 97, 0), (4, 97, 0)]))
    core.feed(step(tokens=[(1, 98, 1)], ends=[End(3, "abort")]))
    assert list(core.recall()) == [Recall([Held(1, b"\1", ids(97, 98)), Held(2, b"\2", ids(97))])]
    assert len(core) == 2


def test_much_to_recall_comes_in_parts(core, monkeypatch):
    monkeypatch.setattr("stretto.roles.detokenizer.core.MAX_RECALL_BYTES", 25)
    core.feed(step([kept(uid, 10) for uid in range(5)]))
    parts = list(core.recall())
    assert [[held.uid for held in part.streams] for part in parts] == [[0, 1, 2], [3, 4]]
    assert [part.last for part in parts] == [False, True]


def test_an_opening_may_be_repeated_and_brings_only_news(core):
    core.feed(step([opened(1)], [(1, 97, 0), (1, 98, 1)]))
    core.take()
    again = Open(1, 2, Output(0, True), b"", ids(97, 98, 99))
    found = events(core, step([again], [(1, 100, 3)]))
    assert found == {0: [Event(1, 2, "cd", ids(99, 100), offset=2)]}


def test_a_successor_tells_everything_from_the_first_token(core):
    told = Open(1, 2, Output(0, True), b"", ids(97, 98))
    found = events(core, step([told], [(1, 99, 2)], hits=[(1, 1)]))
    assert found == {0: [Event(1, 0, "abc", ids(97, 98, 99), usage=Usage(2, 3, 1))]}


def test_a_stop_string_in_what_is_told_again_ends_it_again(core):
    told = Open(1, 2, Output(0, True, ("b",)), b"", ids(97, 98, 99))
    core.feed(step([told], [(1, 99, 3)], hits=[(1, 1)]))
    turn = core.take()
    assert turn.stopped == [1]
    assert turn.events == {0: [Event(1, 0, "a", ids(97, 98), "stop", "b", Usage(2, 2, 1))]}


def test_what_the_cache_had_at_first_counts(core):
    core.feed(step([opened(1)], [(1, 97, 0)], hits=[(1, 1)]))
    (event,) = events(core, step(ends=[End(1, "length", cached_tokens=2)], hits=[(1, 2)]))[0]
    assert event.usage == Usage(2, 1, 1)


def test_a_gateway_that_dies_takes_its_streams_along(core):
    core.feed(step([opened(1), opened(2, gateway=1), opened(3, retain=5.0)], [(1, 97, 0)]))
    core.lose_gateway(0)
    turn = core.take()
    assert (turn.events, turn.stopped, len(core)) == ({}, [1], 2)


# Clients that come back.


def retained(uid=1, **output):
    return opened(uid, retain=10.0, key=7, **output)


def test_a_client_that_comes_back_gets_all_from_its_token_on_once(core):
    core.feed(step([retained()], [(1, 97, 0)]))
    core.take()
    core.tick(1.0)
    core.detach(Detach(1, 0))
    assert events(core, step(tokens=[(1, 98, 1)])) == {}
    core.feed(step(tokens=[(1, 99, 2)]))
    core.attach(Attach(1, 3, 1, 7))
    turn = core.take()
    assert turn.events == {3: [Event(1, 1, "bc", ids(98, 99), usage=Usage(2, 1), offset=1)]}
    assert (turn.moves, core.next_deadline) == ([(0, Detached(1, known=True))], None)
    assert events(core, step(tokens=[(1, 100, 3)])) == {3: [Event(1, 3, "d", ids(100), offset=3)]}


def test_the_gateway_that_had_it_is_told_and_its_late_farewell_ignored(core):
    core.feed(step([retained()], [(1, 97, 0)]))
    core.take()
    core.attach(Attach(1, 3, 1, 7))
    core.detach(Detach(1, 0))
    turn = core.take()
    assert (turn.moves, turn.events) == ([(0, Detached(1, known=True)), (3, Attached(1))], {})
    rest = Event(1, 1, "b", ids(98), usage=Usage(2, 1), offset=1)
    assert events(core, step(tokens=[(1, 98, 1)])) == {3: [rest]}


def test_a_client_that_has_more_than_a_successor_hears_nothing_twice(core):
    core.feed(step([retained(logprobs=0)]))
    core.attach(Attach(1, 3, 2, 7))
    for index, token in enumerate((97, 98)):
        found = events(core, step(tokens=[(1, token, index)], logprobs=[scores(1, -1.0)]))
        assert found == {}
    (event,) = events(core, step(tokens=[(1, 99, 2)], logprobs=[scores(1, -1.0)]))[3]
    assert (event.index, event.offset, event.text, len(event.logprobs)) == (2, 2, "c", 1)


def test_a_finished_stream_is_told_until_its_time_is_over(core):
    core.tick(5.0)
    core.feed(step([retained(stream=False)], [(1, 97, 0)], ends=[End(1, "length")]))
    whole = Event(1, 0, "a", ids(97), "length", None, Usage(2, 1))
    assert core.take().events == {0: [whole]}
    core.tick(14.0)
    for index in (0, 9):
        core.attach(Attach(1, 3, index, 7))
        (event,) = core.take().events[3]
        assert event == (whole if index == 0 else Event(1, 1, "", b"", "length", None, Usage(2, 1), offset=1))
    core.tick(15.0)
    core.attach(Attach(1, 3, 0, 7))
    assert core.take().events == {}


def test_a_finished_stream_that_is_asked_for_again_is_not_computed_again(core):
    core.feed(step([retained()], [(1, 97, 0)], ends=[End(1, "length")]))
    told = core.take().events
    core.feed(step([retained()]))
    turn = core.take()
    assert (turn.events, turn.stopped) == (told, [1])


def test_a_client_may_come_back_before_the_first_token(core):
    core.feed(step([retained()]))
    core.detach(Detach(1, 0))
    core.attach(Attach(1, 3, 0, 7))
    assert core.take().moves == [(0, Detached(1, known=True)), (3, Attached(1))]
    core.tick(PATIENCE)
    assert events(core, step(tokens=[(1, 97, 0)])) == {3: [Event(1, 0, "a", ids(97), usage=Usage(2, 1))]}


def test_a_finished_choice_is_kept_until_its_gateway_lets_it_go(core):
    core.feed(step([retained()], [(1, 97, 0)], ends=[End(1, "length")]))
    core.take()
    core.keep(Keep(1, 0))
    assert core.next_deadline is None
    core.tick(99.0)
    core.detach(Detach(1, 0))
    assert core.next_deadline == 109.0
    core.keep(Keep(1, 0))
    core.lose_gateway(0)
    assert core.next_deadline == 109.0


def test_a_stream_nobody_comes_back_for_is_ended(core):
    core.tick(1.0)
    core.feed(step([retained()], [(1, 97, 0)]))
    core.detach(Detach(1))
    assert core.next_deadline == 11.0
    core.tick(10.9)
    assert core.take().stopped == []
    core.tick(11.0)
    assert (core.take().stopped, len(core), core.next_deadline) == ([1], 0, None)


def test_who_asks_for_an_unknown_stream_or_with_a_wrong_key_waits_in_vain(core):
    core.feed(step([retained(2), opened(3)]))
    for uid in (1, 2, 3):
        core.attach(Attach(uid, 4, 0, 8))
    assert core.take().moves == []
    core.tick(PATIENCE)
    assert core.take().moves == [(4, Detached(uid, known=False)) for uid in (1, 2, 3)]


def test_who_asks_too_early_gets_the_stream_when_it_is_announced(core):
    core.attach(Attach(1, 4, 1, 7))
    core.attach(Attach(1, 3, 1, 7))
    assert core.take().moves == [(4, Detached(1, known=False))]
    told = Open(1, 2, Output(0, True, retain=10.0, key=7), b"", ids(97, 98))
    core.feed(step([told]))
    turn = core.take()
    assert turn.moves == [(0, Detached(1, known=True)), (3, Attached(1))]
    assert turn.events == {3: [Event(1, 1, "b", ids(98), usage=Usage(2, 2), offset=1)]}
    core.tick(PATIENCE)
    assert core.take().moves == []


@given(data=st.data())
def test_text_after_k_tokens_is_the_same_however_they_came(scheme, byte_level, data):
    """Split in any way, told again at any moment, asked for from any token on."""
    tokens = data.draw(st.lists(st.integers(0, 261), min_size=1, max_size=16))
    stop = data.draw(st.lists(st.sampled_from(["ab", "b", "é", "\ufffd"]), max_size=2).map(tuple))
    output = Output(0, True, stop, min_tokens=data.draw(st.integers(0, 4)), retain=1.0)
    certain = {}

    def note(event):
        """Texts at the borders of events must agree with all that was seen before."""
        at, text = event.index + len(event.token_ids) // 4, event.offset + len(event.text)
        assert certain.setdefault(event.index, event.offset) == event.offset
        assert event.finish_reason or certain.setdefault(at, text) == text
        return event

    def play(first):
        core, events = Core(scheme(byte_level)), []
        core.feed(step([Open(1, 2, output, b"", ids(*tokens[:first]))]))
        for index in range(first, len(tokens)):
            if data.draw(st.booleans()):
                events += core.take().events.get(0, [])
            core.feed(step(tokens=[(1, tokens[index], index)]))
        core.feed(step(ends=[End(1, "length")]))
        events += core.take().events.get(0, [])
        for start in sorted(certain):
            core.attach(Attach(1, 0, start, 0))
            for event in core.take().events[0]:
                assert events[-1].finish_reason == event.finish_reason
                note(event)
                whole = "".join(event.text for event in events)
                assert event.text == whole[event.offset :]
        return "".join(note(event).text for event in events), b"".join(event.token_ids for event in events)

    assert play(0) == play(data.draw(st.integers(0, len(tokens)))) == play(0)
