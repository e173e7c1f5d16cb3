"""Little KV memory and many who want it, as clients see it."""

import random
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from e2e.serving import MODEL


@pytest.fixture(scope="module")
def tight(start):
    """A server with room for 1,600 tokens, where a context may have 2,048."""
    server = start("--kv-memory", "1600tokens", "--max-seqs", "32", "--max-model-len", "2048")
    yield server
    server.stop()


def prompt_of(rng, length):
    return [rng.randrange(3, 49000) for _ in range(length)]


def ids(answer):
    return answer["choices"][0]["token_ids"]


def ask_all(server, prompts, **fields):
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt: server.complete(prompt, **fields), prompts))


def test_thirty_two_cold_requests_compute_their_prefix_once(tight):
    rng = random.Random(1)
    shared = prompt_of(rng, 1000)
    prompts = [[*shared, *prompt_of(rng, 3)] for _ in range(32)]
    before = tight.metrics()
    answers = ask_all(tight, prompts, max_tokens=2)
    after = tight.metrics()
    told = {name: after[f"stretto_{name}"] - before[f"stretto_{name}"] for name in
            ("prompt_tokens_total", "cached_tokens_total")}  # fmt: skip
    assert told == {"prompt_tokens_total": 32 * 1003, "cached_tokens_total": 31 * 1000}
    assert [ids(answer) for answer in answers[:4]] == [
        ids(tight.complete(prompt, max_tokens=2)) for prompt in prompts[:4]
    ]


def test_many_in_a_quarter_of_the_memory_they_want_get_what_they_get_alone(tight):
    rng = random.Random(2)
    prompts = [prompt_of(rng, rng.randint(20, 60)) for _ in range(40)]
    alone = [ids(tight.complete(prompt, max_tokens=80)) for prompt in prompts[:4]]
    together = ask_all(tight, prompts, max_tokens=80, ignore_eos=True)
    assert [len(ids(answer)) for answer in together] == [80] * 40
    for expected, answer in zip(alone, together, strict=False):
        assert ids(answer)[: len(expected)] == expected


def test_a_prompt_that_fits_the_context_but_not_the_pool_is_refused_and_the_next_is_served(tight):
    prompt = prompt_of(random.Random(3), 1700)
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 4}
    refused = httpx.post(f"{tight.url}/v1/completions", json=body, timeout=None)
    error = refused.json()["error"]
    assert error["code"] == "kv_pool_exceeded"
    assert "need 107 KV pages, but the pool has 100" in error["message"]
    assert len(ids(tight.complete(prompt[:50], max_tokens=4))) <= 4


def test_the_cache_is_shown_in_numbers_and_flushed(tight):
    tight.complete(prompt_of(random.Random(4), 100), max_tokens=1)
    shown = httpx.get(f"{tight.url}/cache").json()
    assert shown["tokens"] >= 100
    assert shown["pages_free"] + shown["pages_cached"] + shown["pages_owned"] == 100
    assert shown["largest"][0]["tokens"] >= 100
    assert httpx.post(f"{tight.url}/flush_cache").json() == {"flushed_tokens": shown["tokens"]}
    assert httpx.get(f"{tight.url}/cache").json()["pages_free"] == 100


def test_nothing_of_one_salt_shows_in_the_usage_of_another(tight):
    prompt = prompt_of(random.Random(5), 64)
    cached = [
        tight.complete(prompt, max_tokens=1, cache_salt=salt)["usage"]["prompt_tokens_details"][
            "cached_tokens"
        ]
        for salt in ("ours", "theirs", "ours")
    ]
    assert cached == [0, 0, 63]
