"""Prefix reuse as a client sees it."""

import random
from concurrent.futures import ThreadPoolExecutor


def test_a_thousand_shared_tokens_are_a_thousand_cached_tokens(server):
    rng = random.Random(7)
    shared = [rng.randrange(3, 49000) for _ in range(1000)]
    first = server.complete([*shared, 11, 12, 13], max_tokens=4)
    second = server.complete([*shared, 21, 22, 23], max_tokens=4)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 1000


def test_thirty_two_identical_cold_prompts_agree(server):
    prompt = "A prompt that nobody has sent before: the answer to everything is"
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: server.complete(prompt, max_tokens=12), range(32)))
    assert len({tuple(answer["choices"][0]["token_ids"]) for answer in answers}) == 1
