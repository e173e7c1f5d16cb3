import pytest

from stretto.roles.messages import Controls, Sampling, SamplingParams
from stretto.roles.tokenizer.refusal import Refused
from stretto.roles.tokenizer.sampling import (
    MAX_STOP_CHARS,
    check_counts,
    check_stop_strings,
    resolve_sampling,
    resolve_stops,
)


def test_greedy_requests_lose_their_filters():
    params = SamplingParams(temperature=0, top_k=5, top_p=0.5, min_p=0.1, seed=3)
    assert resolve_sampling(params, 9, None) == Sampling(0.0, 0, 1.0, 0.0, 3)


def test_other_requests_keep_them():
    params = SamplingParams(temperature=0.7, top_k=5, top_p=0.5, min_p=0.1, seed=3)
    assert resolve_sampling(params, 9, None) == Sampling(0.7, 5, 0.5, 0.1, 3)


@pytest.mark.parametrize("top_k", [-1, 0])
def test_top_k_may_be_off_in_two_ways(top_k):
    assert resolve_sampling(SamplingParams(top_k=top_k), 9, None).top_k == 0


@pytest.mark.parametrize(("seed", "resolved"), [(None, 9), (0, 0), (-1, 2**64 - 1), (2**64 + 5, 5)])
def test_a_seed_is_unsigned_64_bit_and_fresh_when_not_named(seed, resolved):
    assert resolve_sampling(SamplingParams(seed=seed), 9, None).seed == resolved


def test_controls_and_prompt_logprobs_are_passed_on():
    controls = Controls(presence_penalty=1.0)
    resolved = resolve_sampling(SamplingParams(prompt_logprobs=0, seed=1), 9, controls)
    assert resolved == Sampling(1.0, seed=1, controls=controls, prompt_logprobs=0)


@pytest.mark.parametrize(
    ("fields", "resolved"),
    [
        ({}, None),
        ({"logprobs": 0}, 0),
        ({"logprobs": 5, "best_of": 3}, 5),
        ({"best_of": 1}, None),
        ({"n": 2, "best_of": 2}, None),
        ({"best_of": 2}, 0),
        ({"n": 2, "use_beam_search": True}, 0),
    ],
)
def test_where_choices_are_ranked_every_tokens_log_probability_is_asked_for(fields, resolved):
    assert resolve_sampling(SamplingParams(**fields), 9, None).logprobs == resolved


@pytest.mark.parametrize(
    ("fields", "param", "why"),
    [
        ({"logprobs": 21}, "logprobs", "may be 0 to 20, not 21"),
        ({"logprobs": -1}, "logprobs", "may be 0 to 20, not -1"),
        ({"prompt_logprobs": 21}, "prompt_logprobs", "may be 0 to 20, not 21"),
        ({"min_tokens": 3, "max_tokens": 2}, "min_tokens", r"\(3\) is beyond max_tokens \(2\)"),
        ({"n": 0}, "n", "may be 1 to 64, not 0"),
        ({"n": 65}, "n", "may be 1 to 64, not 65"),
        ({"best_of": 65}, "best_of", "may be 1 to 64, not 65"),
        ({"n": 3, "best_of": 2}, "best_of", r"\(2\) is less than n \(3\)"),
    ],
)
def test_counts_that_cannot_be_are_refused(fields, param, why):
    with pytest.raises(Refused, match=why) as refused:
        check_counts(SamplingParams(**fields))
    assert refused.value.fault.param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"min_tokens": 9},
        {"min_tokens": 2, "max_tokens": 2},
        {"logprobs": 20, "prompt_logprobs": 20, "n": 64, "best_of": 64},
    ],
)
def test_counts_at_their_limits_pass(fields):
    check_counts(SamplingParams(**fields))


@pytest.mark.parametrize(
    ("params", "stops"),
    [
        (SamplingParams(), ((2, 3), (2, 3))),
        (SamplingParams(stop_token_ids=(7, 3)), ((2, 3, 7), (2, 3))),
        (SamplingParams(stop_token_ids=(7, 3), ignore_eos=True), ((7, 3), ())),
    ],
)
def test_stop_ids_are_the_models_own_then_the_clients(params, stops):
    assert resolve_stops(params, (2, 3), 10) == stops


@pytest.mark.parametrize("token", [-1, 10])
def test_stop_ids_outside_the_vocabulary_are_refused(token):
    with pytest.raises(Refused, match=f"has {token}, but token ids run from 0 to 9") as refused:
        resolve_stops(SamplingParams(stop_token_ids=(token,)), (), 10)
    assert refused.value.fault.param == "stop_token_ids"


@pytest.mark.parametrize("stop", [("",), ("a\ud800",), ("a" * MAX_STOP_CHARS, "b")])
def test_impossible_stop_strings_are_refused(stop):
    with pytest.raises(Refused) as refused:
        check_stop_strings(stop)
    assert refused.value.fault.param == "stop"


def test_possible_stop_strings_pass():
    check_stop_strings(("é" * (MAX_STOP_CHARS - 1), "😀"))
