import pytest

from stretto.roles.messages import Sampling, SamplingParams
from stretto.roles.tokenizer.refusal import Refused
from stretto.roles.tokenizer.sampling import (
    MAX_STOP_CHARS,
    check_stop_strings,
    resolve_sampling,
    resolve_stops,
)


def test_greedy_requests_lose_their_filters():
    params = SamplingParams(temperature=0, top_k=5, top_p=0.5, min_p=0.1, seed=3)
    assert resolve_sampling(params, 9) == Sampling(0.0, 0, 1.0, 0.0, 3)


def test_other_requests_keep_them():
    params = SamplingParams(temperature=0.7, top_k=5, top_p=0.5, min_p=0.1, seed=3)
    assert resolve_sampling(params, 9) == Sampling(0.7, 5, 0.5, 0.1, 3)


@pytest.mark.parametrize("top_k", [-1, 0])
def test_top_k_may_be_off_in_two_ways(top_k):
    assert resolve_sampling(SamplingParams(top_k=top_k), 9).top_k == 0


@pytest.mark.parametrize(("seed", "resolved"), [(None, 9), (0, 0), (-1, 2**64 - 1), (2**64 + 5, 5)])
def test_a_seed_is_unsigned_64_bit_and_fresh_when_not_named(seed, resolved):
    assert resolve_sampling(SamplingParams(seed=seed), 9).seed == resolved


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
