"""Choices of one prompt: the prompt's pages are stored once and copied on write, as the textbook counts."""

import random
import time

import openai
import pytest
from e2e.serving import MODEL

PAGE = 16


@pytest.fixture(scope="module")
def small(start):
    """A pool of 100 pages: too few for two prompts of 1,000 tokens."""
    server = start("--kv-memory", f"{100 * PAGE}tokens", "--page-size", str(PAGE))
    yield server
    server.stop()


def prompt_of(length, seed):
    rng = random.Random(seed)
    return [rng.randrange(3, 49000) for _ in range(length)]


def watch(server, prompt, max_tokens):
    """Four choices of one prompt: the pages in use whenever all four ran, and the usage."""
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=None)
    stream = client.completions.create(
        model=MODEL, prompt=prompt, n=4, seed=5, max_tokens=max_tokens, stream=True,
        stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
    )  # fmt: skip
    seen = []
    for number, chunk in enumerate(stream):
        usage = chunk.usage
        if number % 4 == 0 and (metrics := server.metrics())["stretto_requests_running"] == 4:
            seen.append(metrics["stretto_kv_pages_owned"])
    assert seen, "the four never ran together"
    return seen, usage


def idle(server):
    """Wait until nothing runs; the pages that hold something then."""
    while (metrics := server.metrics())["stretto_requests_running"]:
        time.sleep(0.01)
    assert metrics["stretto_kv_pages_owned"] == 0
    return metrics["stretto_kv_pages"] - metrics["stretto_kv_pages_free"]


def test_four_choices_of_a_hundred_tokens_hold_twenty_two_pages(small):
    """Six full pages of the prompt, and four of each choice: 40 if nothing were shared."""
    before = idle(small)
    seen, usage = watch(small, prompt_of(100, seed=1), 50)
    assert (usage.prompt_tokens, usage.completion_tokens) == (100, 200)
    assert max(seen) <= 22
    assert idle(small) - before == 22


def test_four_choices_of_a_thousand_tokens_store_the_prompt_once(small):
    retracted = small.metrics()["stretto_retractions_total"]
    seen, usage = watch(small, prompt_of(1000, seed=2), 40)
    assert (usage.prompt_tokens, usage.completion_tokens) == (1000, 160)
    shared, each = 1000 // PAGE, -(-1040 // PAGE) - 1000 // PAGE
    assert shared + 4 <= min(seen) <= max(seen) <= shared + 4 * each
    assert small.metrics()["stretto_retractions_total"] == retracted


def test_choices_are_reproducible_and_the_first_is_that_of_a_single_one(server):
    ask = {"prompt": "The best thing about the sea is", "seed": 11, "temperature": 1, "max_tokens": 12}
    four = server.complete(**ask, n=4)["choices"]
    again = server.complete(**ask, n=4)["choices"]
    assert [choice["token_ids"] for choice in four] == [choice["token_ids"] for choice in again]
    assert len({tuple(choice["token_ids"]) for choice in four}) == 4
    assert server.complete(**ask)["choices"][0]["token_ids"] == four[0]["token_ids"]


def test_the_best_of_four_are_those_of_the_highest_mean_logprob(server):
    ask = {"prompt": "My favourite colour is", "seed": 3, "temperature": 1, "max_tokens": 10, "logprobs": 0}
    four = server.complete(**ask, n=4)["choices"]
    best = server.complete(**ask, n=2, best_of=4)

    def mean(choice):
        return sum(choice["logprobs"]["token_logprobs"]) / len(choice["token_ids"])

    ranked = sorted(four, key=mean, reverse=True)[:2]
    assert [choice["token_ids"] for choice in best["choices"]] == [choice["token_ids"] for choice in ranked]
    assert best["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in four)


def test_choices_whose_client_leaves_free_their_pages(small):
    client = openai.OpenAI(base_url=small.url + "/v1", api_key="none", timeout=None)
    stream = client.completions.create(
        model=MODEL, prompt=prompt_of(100, seed=3), n=4, max_tokens=400, stream=True,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    next(iter(stream))
    stream.close()
    idle(small)
