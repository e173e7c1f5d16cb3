from stretto.bench.pressure import Round, different, family_of, figures_of, prefix_figures, requests_of

COUNTED = {
    "retractions": 2.0,
    "swapped_pages": 3.0,
    "host_hit_pages": 5.0,
    "evicted_pages": 7.0,
    "prompt_tokens": 100.0,
    "cached_tokens": 60.0,
}


def test_the_same_seed_makes_the_same_requests_half_of_them_sampled() -> None:
    bodies = requests_of(4, 32, 16, seed=1)
    assert bodies == requests_of(4, 32, 16, seed=1)
    assert [body.get("seed") for body in bodies] == [None, 1, None, 3]
    assert all(16 <= len(body["prompt"]) <= 48 for body in bodies)
    assert all(8 <= body["max_tokens"] <= 24 for body in bodies)


def test_a_family_shares_all_but_its_last_tokens() -> None:
    one, other = family_of(2, 100, seed=1)
    assert len(one["prompt"]) == 104
    assert one["prompt"][:100] == other["prompt"][:100]
    assert one["prompt"][100:] != other["prompt"][100:]


def test_answers_that_are_not_those_given_alone_are_counted() -> None:
    assert different([[1, 2], [3]], [[1, 2], [3]]) == 0
    assert different([[1, 2], [3]], [[1, 9], []]) == 2


def test_rates_are_compared_round_by_round() -> None:
    ample = [Round([[1, 2]], 1.0, COUNTED), Round([[1, 2]], 2.0, COUNTED)]
    tight = [Round([[1, 2]], 2.0, COUNTED), Round([[1, 3]], 4.0, COUNTED)]
    row = figures_of("a quarter", tight, ample, [[1, 2]])
    assert (row["ratio"], row["different"], row["retractions"], row["swapped_pages"]) == (0.5, 1, 4, 6)


def test_what_was_not_cached_was_computed() -> None:
    figures = prefix_figures(Round([[1]], 1.0, COUNTED), [[1]])
    assert (figures["computed_tokens"], figures["different"]) == (40.0, 0)
