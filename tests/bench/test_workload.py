from random import Random

from stretto.bench.workload import Shape, Turn, independent, multi_turn, poisson, shared_prefix

SHAPE = Shape(input_tokens=10, output_tokens=4, vocabulary=50)


def lengths(turns: list[Turn]) -> list[tuple[int, int]]:
    return [(len(turn.prompt), turn.output_tokens) for turn in turns]


def test_the_same_seed_makes_the_same_load() -> None:
    assert independent(SHAPE, 3, seed=1) == independent(SHAPE, 3, seed=1)
    assert independent(SHAPE, 3, seed=1) != independent(SHAPE, 3, seed=2)


def test_independent_prompts_are_single_turns_of_the_shape() -> None:
    sessions = independent(SHAPE, 3, seed=1)
    assert [lengths(session) for session in sessions] == [[(10, 4)]] * 3
    assert all(0 <= token < 50 for ((prompt, _),) in sessions for token in prompt if isinstance(token, int))
    assert len({str(session) for session in sessions}) == 3


def test_a_longer_load_begins_with_the_shorter_one() -> None:
    assert independent(SHAPE, 5, seed=1)[:3] == independent(SHAPE, 3, seed=1)


def test_lengths_vary_within_the_spread() -> None:
    shape = SHAPE._replace(spread=0.5)
    found = lengths([turn for (turn,) in independent(shape, 300, seed=1)])
    assert {prompt for prompt, _ in found} == set(range(5, 16))
    assert {output for _, output in found} == set(range(2, 7))


def test_a_prompt_has_a_token_at_least() -> None:
    shape = Shape(1, 1, spread=1.0, vocabulary=50)
    assert min(len(turn.prompt) for (turn,) in independent(shape, 50, seed=1)) == 1


def test_prefixes_are_used_in_turn() -> None:
    prompts = [turn.prompt for (turn,) in shared_prefix(SHAPE, 4, seed=1, prefix_tokens=20, prefixes=2)]
    heads = [prompt[:20] for prompt in prompts]
    assert [len(prompt) for prompt in prompts] == [30] * 4
    assert heads[0] == heads[2] != heads[1] == heads[3]
    assert len({str(prompt[20:]) for prompt in prompts}) == 4


def test_a_conversation_has_so_many_turns() -> None:
    assert [lengths(session) for session in multi_turn(SHAPE, 2, seed=1, turns=3)] == [[(10, 4)] * 3] * 2


def test_arrivals_are_the_sums_of_exponential_gaps() -> None:
    rng = Random(3)
    first, second = rng.expovariate(4.0), rng.expovariate(4.0)
    assert poisson(4.0, 2, seed=3) == [first, first + second]


def test_arrivals_come_at_the_rate() -> None:
    assert 950 < poisson(10.0, 10_000, seed=1)[-1] < 1050
