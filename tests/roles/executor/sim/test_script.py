import numpy as np

from stretto.roles.executor.sim.script import Script


def say(script: Script, seed: int, positions: list[int], outputs: list[int] | None = None) -> list[int]:
    seeds = np.full(len(positions), seed, np.uint64)
    places = np.array(positions, np.int64)
    return script(seeds, places, places if outputs is None else np.array(outputs, np.int64)).tolist()


def test_tokens_are_those_of_the_generator_that_is_named() -> None:
    # splitmix64 seeded with 0 yields 0xE220A8397B1DCDAF, then 0x6E789E6AA1B965F4
    words = 1000 // 4
    assert say(Script(1000, ()), 0, [0, 1]) == [
        words + 0xE220A8397B1DCDAF % words,
        words + 0x6E789E6AA1B965F4 % words,
    ]


def test_seed_and_position_decide_alone() -> None:
    script = Script(49152, (2,))
    assert say(script, 7, [5, 6, 7]) == [say(script, 7, [place])[0] for place in (5, 6, 7)]
    assert say(script, 7, [5]) != say(script, 8, [5])
    assert say(script, 2**64 - 1, [5]) == say(script, 2**64 - 1, [5], [90])


def test_all_words_are_ordinary_and_none_ends_the_output() -> None:
    said = set(say(Script(64, (20, 31)), 1, list(range(2000))))
    assert said == set(range(16, 32)) - {20, 31}


def test_an_output_ends_with_its_last_token() -> None:
    said = say(Script(64, (2, 3), length=4), 1, list(range(10, 16)), list(range(6)))
    assert [place for place, token in enumerate(said) if token == 2] == [3]


def test_a_model_without_an_end_never_ends() -> None:
    assert say(Script(64, (), length=1), 1, [9], [0]) == say(Script(64, ()), 1, [9], [0])
