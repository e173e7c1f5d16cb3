from array import array

from stretto.roles.detokenizer.labels import LABELS, Labels
from stretto.roles.messages import Alternative, PromptLogprobs, TokenInfo, TokenLogprobs


def ints(*values):
    return array("i", values).tobytes()


def floats(*values):
    return array("f", values).tobytes()


def labels(calls=None):
    """Token n is the byte n; each look-up is noted in `calls`."""
    calls = [] if calls is None else calls
    return Labels(lambda token: (calls.append(token), bytes([token]))[1])


def byte(token, logprob):
    return Alternative(token, chr(token), bytes([token]), logprob)


def test_a_token_has_its_text_its_bytes_its_rank_and_the_likeliest():
    found = TokenLogprobs(1, -1.5, 3, ints(98, 0xC3), floats(-0.5, -1))
    assert labels().token(97, found) == TokenInfo(
        97, "a", b"a", -1.5, 3, [byte(98, -0.5), Alternative(0xC3, "\ufffd", b"\xc3", -1.0)]
    )


def test_alternatives_come_only_where_asked_for():
    assert labels().token(97, TokenLogprobs(1, -1.5, 3)).top == []


def test_an_unknown_id_has_no_text():
    assert Labels(lambda token: b"").token(5, TokenLogprobs(1, -1.0, 1)) == TokenInfo(5, "", b"", -1.0, 1, [])


def test_the_prompts_tokens_are_named_by_their_place():
    found = PromptLogprobs(
        1, 2, floats(-1, -2), ints(1, 4), ints(97, 98, 99, 100), floats(-1, -1.25, -0.5, -0.75)
    )
    prompt = memoryview(ints(1, 2, 97, 101)).cast("i")
    assert list(labels().prompt(prompt, found)) == [
        TokenInfo(97, "a", b"a", -1.0, 1, [byte(97, -1.0), byte(98, -1.25)]),
        TokenInfo(101, "e", b"e", -2.0, 4, [byte(99, -0.5), byte(100, -0.75)]),
    ]


def test_the_prompts_tokens_may_have_no_alternatives():
    prompt = memoryview(ints(1, 97)).cast("i")
    (info,) = labels().prompt(prompt, PromptLogprobs(1, 1, floats(-1), ints(2)))
    assert info == TokenInfo(97, "a", b"a", -1.0, 2, [])
    assert list(labels().prompt(prompt, PromptLogprobs(1, 2, b"", b""))) == []


def test_a_token_is_looked_up_once_as_long_as_there_is_room():
    calls = []
    some = labels(calls)
    for _ in range(3):
        some.token(97, TokenLogprobs(1, -1.0, 1, ints(97, 98), floats(-1, -2)))
    assert calls == [97, 98]
    many = Labels(lambda token: b"")
    for token in range(LABELS + 9):
        many.token(token, TokenLogprobs(1, -1.0, 1))
    assert many._label.cache_info().currsize == LABELS
