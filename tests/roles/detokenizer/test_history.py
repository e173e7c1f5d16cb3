from array import array

from stretto.roles.detokenizer.history import History
from stretto.roles.messages import Event, TokenInfo, Usage


def ids(*values):
    return array("i", values).tobytes()


def info(token):
    return TokenInfo(token, chr(token), bytes([token]), -1.0, 1, [])


def told():
    """Four tokens, of which the second made nothing certain, in two events."""
    history = History()
    for chars in (1, 0, 2, 1):
        history.token(chars)
    first, second = [info(97), info(98)], [info(99), info(100)]
    history.add(Event(1, 0, "a", ids(97, 98), usage=Usage(3, 2), logprobs=first, prompt_text="p"))
    history.add(Event(1, 2, "bcd", ids(99, 100), logprobs=second, offset=1))
    return history


def test_it_is_told_again_from_any_token_on():
    history = told()
    shown = [history.since(index) for index in range(4)]
    assert [(event.index, event.offset, event.text) for event in shown] == [
        (0, 0, "abcd"),
        (1, 1, "bcd"),
        (2, 1, "bcd"),
        (3, 3, "d"),
    ]
    assert [len(event.token_ids) // 4 for event in shown] == [4, 3, 2, 1]
    assert [len(event.logprobs) for event in shown] == [4, 3, 2, 1]
    assert [event.prompt_text for event in shown] == ["p", None, None, None]
    assert {event.usage for event in shown} == {Usage(3, 2)}


def test_there_is_nothing_beyond_what_was_told_until_the_end():
    history = told()
    assert (history.since(4), history.ended) == (None, False)
    history.add(Event(1, 4, "!", b"", "stop", "x", Usage(3, 4), offset=4, cumulative_logprob=-4.0))
    assert history.ended
    for index in (4, 9):
        last = history.since(index)
        assert (last.index, last.offset, last.text, last.token_ids) == (4, 4, "!", b"")
        assert (last.finish_reason, last.stop_reason, last.usage) == ("stop", "x", Usage(3, 4))
    assert history.since(0).text == "abcd!"


def test_text_that_a_stop_string_cut_off_is_not_told():
    history = History()
    for chars in (1, 1):
        history.token(chars)
    history.add(Event(1, 0, "a", ids(97, 98), "stop", "b", Usage(3, 2)))
    assert (history.since(2).offset, history.since(2).text) == (1, "")
