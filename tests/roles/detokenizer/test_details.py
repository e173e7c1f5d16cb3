from array import array

import pytest

from stretto.roles.detokenizer.details import Details, wants_details
from stretto.roles.detokenizer.labels import Labels
from stretto.roles.messages import Open, Output, PromptLogprobs, TokenInfo, TokenLogprobs

PROMPT = (97, 98, 99, 100)


def ids(*values):
    return array("i", values).tobytes()


def part(start, count):
    """Ranks of a prompt's tokens are their places."""
    logprobs = array("f", [-1.0] * count).tobytes()
    return PromptLogprobs(7, start, logprobs, ids(*range(start, start + count)))


def infos(*places):
    """Of `PROMPT`, at these places."""
    return [TokenInfo(PROMPT[i], chr(PROMPT[i]), bytes([PROMPT[i]]), -1.0, i, []) for i in places]


@pytest.fixture
def make(byte_level, scheme):
    def make(prompt=PROMPT, **output):
        opened = Open(7, len(prompt), Output(0, True, prompt_ids=ids(*prompt), **output))
        chosen = scheme(byte_level)
        return Details(opened, chosen, Labels(chosen.raw))

    return make


@pytest.mark.parametrize(
    ("output", "wanted"),
    [({}, False), ({"echo": True}, True), ({"logprobs": 0}, True), ({"prompt_logprobs": 0}, True)],
)
def test_most_requests_have_no_details(output, wanted):
    assert wants_details(Output(0, True, return_prompt_ids=True, **output)) is wanted


def test_tokens_are_told_once(make):
    details = make(logprobs=0)
    details.token(97, TokenLogprobs(7, -0.5, 1))
    told = details.take(1, 0)
    assert told["logprobs"] == [TokenInfo(97, "a", b"a", -0.5, 1, [])]
    details.token(98, TokenLogprobs(7, -0.25, 2))
    assert details.take(1, 0) == {"logprobs": [TokenInfo(98, "b", b"b", -0.25, 2, [])]}


def test_log_probabilities_that_only_choose_are_not_told(make):
    details = make(echo=True)
    details.token(97, TokenLogprobs(7, -0.5, 1))
    assert "logprobs" not in details.take(1, 0)


def test_a_token_without_its_log_probability_is_an_error(make):
    details = make(logprobs=0)
    with pytest.raises(RuntimeError, match="1 tokens came with 0 log-probabilities"):
        details.take(1, 0)


@pytest.mark.parametrize(
    "parts",
    [
        [part(1, 3)],
        [part(1, 1), part(2, 0), part(2, 2)],
        [part(1, 2), part(1, 2), part(3, 1)],
        [part(1, 2), part(1, 3), part(1, 3)],
    ],
)
def test_the_prompts_parts_are_told_whole_with_the_first_event(make, parts):
    details = make(prompt_logprobs=0)
    for one in parts:
        details.prompt(one)
    told = {"prompt_logprobs": [None, *infos(1, 2, 3)], "prompt_first": (97, b"a"), "prompt_text": None}
    assert details.take(1, 0) == told
    assert details.take(1, 0) == {}


def test_of_a_prompt_of_one_token_there_is_nothing_to_say(make):
    assert make(prompt=(97,), prompt_logprobs=0).take(1, 0)["prompt_logprobs"] == [None]


def test_of_a_prompt_that_was_not_finished_nothing_is_told(make):
    details = make(prompt_logprobs=0)
    details.prompt(part(1, 2))
    assert details.take(0, 0) == {"prompt_text": None}


def test_a_missing_part_is_an_error(make):
    details = make(prompt_logprobs=0)
    details.prompt(part(1, 1))
    with pytest.raises(RuntimeError, match="from 3 came when 2 was due"):
        details.prompt(part(3, 1))


def test_the_prompt_is_echoed_as_it_was_written_else_from_its_ids(make, byte_level):
    for text in ("as sent", ""):
        assert make(echo=True, prompt_text=text).take(1, 0)["prompt_text"] == text
    start = byte_level.token_to_id("<s>")
    assert make(prompt=(start, *PROMPT), echo=True).take(1, 0)["prompt_text"] == "<s>abcd"
    assert make(logprobs=0).take(0, 0)["prompt_text"] is None


@pytest.mark.parametrize(("completed", "text"), [(0, "a\ufffd"), (1, "a")])
def test_a_character_that_the_output_completes_is_left_to_it(make, completed, text):
    assert make(prompt=(97, 0xF0, 0x9F), echo=True).take(1, completed)["prompt_text"] == text
