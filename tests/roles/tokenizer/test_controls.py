from array import array

import pytest

from stretto.roles.messages import Controls, SamplingParams
from stretto.roles.tokenizer.controls import MAX_BAD_WORD_CHARS, MAX_BAD_WORDS, resolve_controls
from stretto.roles.tokenizer.refusal import Refused
from stretto.roles.tokenizer.vocabulary import load_vocabulary

SPELLED = {
    "bad": [1], " bad": [2],
    "Strawberry": [3, 4], " Strawberry": [5],
    "odd": [6], " odd": [7, 6],
    " ": [8], "  ": [9],
    "gone": [], " gone": [8],
}  # fmt: skip


def ids(*values):
    return array("i", values).tobytes()


def resolve(stop_ids=(2, 3), **params):
    return resolve_controls(SamplingParams(**params), stop_ids, 10, SPELLED.__getitem__)


def test_a_plain_request_has_none():
    assert resolve() is None


def test_penalties_are_passed_on():
    found = resolve(presence_penalty=0.5, frequency_penalty=-1.0, repetition_penalty=1.25)
    assert found == Controls(0.5, -1.0, 1.25)


def test_biases_are_sorted_by_id():
    found = resolve(logit_bias={9: 1.5, 0: -100.0})
    assert found == Controls(bias_ids=ids(0, 9), bias_values=array("f", [-100, 1.5]).tobytes())


def test_allowed_ids_are_a_set():
    assert resolve(allowed_token_ids=(4, 2, 4)) == Controls(allowed_ids=ids(2, 4))


def test_stop_ids_are_forbidden_before_min_tokens():
    assert resolve(min_tokens=4) == Controls(min_tokens=4, min_tokens_ids=ids(2, 3))
    assert resolve(min_tokens=4, stop_ids=()) is None


@pytest.mark.parametrize(
    ("words", "sequences"),
    [
        (["bad"], [[1], [2]]),
        ([" bad"], [[1], [2]]),
        (["bad", " bad"], [[1], [2]]),
        (["Strawberry"], [[3, 4], [5]]),
        (["odd"], [[6]]),
        ([" "], [[8], [9]]),
        (["odd", "bad"], [[6], [1], [2]]),
    ],
)
def test_bad_words_are_forbidden_with_and_without_a_space(words, sequences):
    assert resolve(bad_words=tuple(words)) == Controls(bad_words=tuple(ids(*s) for s in sequences))


def test_bad_words_of_the_embedded_model_are_those_of_vllm(model_dir):
    vocabulary = load_vocabulary(model_dir)
    words = ("Paris", " the", "antidisestablishment", "\u00e9t\u00e9")
    found = resolve_controls(
        SamplingParams(bad_words=words), (), vocabulary.size, lambda text: vocabulary.encode(text, False)
    )
    assert set(found.bad_words) >= {ids(*sequence) for sequence in _vllm(words, vocabulary)}


def _vllm(words, vocabulary):
    """vLLM's `SamplingParams.update_from_tokenizer`, in short."""
    for word in words:
        bare, spaced = (vocabulary.encode(prefix + word.lstrip(), False) for prefix in ("", " "))
        yield bare
        if spaced[0] != bare[0] and len(spaced) == len(bare):
            yield spaced


@pytest.mark.parametrize(
    ("params", "param", "why"),
    [
        ({"logit_bias": {10: 1.0}}, "logit_bias", "has 10, but token ids run from 0 to 9"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias", "has -1"),
        ({"allowed_token_ids": ()}, "allowed_token_ids", "is empty"),
        ({"allowed_token_ids": (1, 10)}, "allowed_token_ids", "has 10"),
        ({"allowed_token_ids": (2, 3), "min_tokens": 1}, "allowed_token_ids", "only ids that min_tokens"),
        ({"allowed_token_ids": (1, 2), "bad_words": ("bad",)}, "allowed_token_ids", "no token could follow"),
        ({"bad_words": ("",)}, "bad_words", "has '': a word has 1 to"),
        ({"bad_words": ("bad", "gone")}, "bad_words", "has 'gone', which the tokenizer does not know"),
        ({"bad_words": ("a\ud800",)}, "bad_words", "surrogate"),
        ({"bad_words": ("x" * (MAX_BAD_WORD_CHARS + 1),)}, "bad_words", "a word has 1 to"),
        ({"bad_words": ("bad",) * (MAX_BAD_WORDS + 1)}, "bad_words", "may have 256 entries, not 257"),
    ],
)
def test_what_cannot_be_is_refused(params, param, why):
    with pytest.raises(Refused, match=why) as refused:
        resolve(**params)
    assert refused.value.fault.param == param


def test_longer_bad_words_and_stops_that_are_allowed_later_leave_something_to_sample():
    resolve(allowed_token_ids=(3, 4), bad_words=("Strawberry",))
    resolve(allowed_token_ids=(2, 4), min_tokens=1)
