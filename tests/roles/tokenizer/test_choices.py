import pytest
from msgspec.structs import replace

from stretto.roles.messages import Output, Request, Sampling, SamplingParams
from stretto.roles.tokenizer.choices import choice_count, choice_seed, split


def request(**output):
    sampling = Sampling(1.0, seed=5, logprobs=2, prompt_logprobs=1)
    output = Output(
        0, False, prompt_ids=b"abcd", return_prompt_ids=True, logprobs=2, prompt_logprobs=1, **output
    )
    return Request(7, 0.0, b"abcd", 4, (), sampling, output)


@pytest.mark.parametrize(
    ("params", "requests", "uids"),
    [
        (SamplingParams(), 1, 1),
        (SamplingParams(n=3), 3, 3),
        (SamplingParams(n=2, best_of=4), 4, 4),
        (SamplingParams(n=2, best_of=4, use_beam_search=True), 1, 4),
    ],
)
def test_choices_are_counted(params, requests, uids):
    assert (choice_count(params), params.width) == (requests, uids)


def test_seeds_are_those_of_splitmix64():
    reference = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # of state 0, as published
    assert [choice_seed(0, i) for i in range(4)] == [0, *reference]
    assert choice_seed(2**64 - 1, 1) == 0xE4D971771B652C20


def test_one_choice_is_the_request_itself():
    assert split(request(), 1) == [request()]


def test_the_others_follow_the_first_and_differ_in_their_seed():
    first, second, third = split(request(), 3)
    assert first == request()
    assert [(r.uid, r.leader, r.sampling.seed) for r in (second, third)] == [
        (8, 7, choice_seed(5, 1)), (9, 7, choice_seed(5, 2)),
    ]  # fmt: skip
    for choice in (second, third):
        same = replace(choice, uid=7, leader=None, sampling=replace(choice.sampling, seed=5))
        assert same == request()
