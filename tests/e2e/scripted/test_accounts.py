"""Log-probabilities and counts, in each of the forms they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from e2e.scripted.asking import Answer
from e2e.scripted.cases import RAW
from e2e.scripted.scripts import logprobs_of
from e2e.scripted.shared import CHAT, COIN, DICE, LONG, SCORED, UNEVEN
from e2e.scripted.trials import FLOOR, Bench, about

streams = pytest.mark.parametrize("stream", [False, True])

MESSAGES = [{"role": "user", "content": "hi"}]


def table(step: Any, token: int, top: int) -> dict[str, Any]:
    """An entry of `prompt_logprobs`: the token and the likeliest, by id."""
    logprobs = logprobs_of(step, len(RAW)).clip(FLOOR)
    best = sorted(range(len(RAW)), key=lambda i: (-logprobs[i], i))[:top]
    ranks = {i: 1 + int(np.sum(logprobs > logprobs[i])) for i in [token, *best]}
    return {
        str(i): {"logprob": about(logprobs[i]), "rank": rank, "decoded_token": RAW[i].decode()}
        for i, rank in ranks.items()
    }


def scored(bench: Bench, top: int) -> Answer:
    """The right answer to `SCORED` where the prompt's log-probabilities are asked for."""
    answer, prompt = bench.right(SCORED), bench.shelf.prompt(SCORED)
    tables = [table(step, token, top) for step, token in zip(SCORED.hears, prompt[1:], strict=True)]
    answer.only.prompt_logprobs = [None, *tables]
    return answer


@streams
@pytest.mark.parametrize("top", [0, 3])
def test_a_prompt_is_scored_alike_when_it_is_cached(roomy: Bench, stream: bool, top: int) -> None:
    for _ in range(2):
        answer = roomy.ask(SCORED, prompt_logprobs=top, stream=stream)
        assert answer == scored(roomy, top)
        assert answer.cached_tokens == 0
    assert roomy.ask(SCORED).cached_tokens == len(SCORED.prompt)


@streams
def test_a_prompt_is_scored_alike_in_chunks_and_after_retractions(tight: Bench, stream: bool) -> None:
    before = tight.metrics()["retractions_total"]
    long = [lambda: tight.ask(DICE, temperature=1, max_tokens=60, seed=1)] * 4
    calls = [lambda: tight.ask(SCORED, prompt_logprobs=3, stream=stream)] * 4
    for future in tight.at_once([*long, *calls])[4:]:
        assert future.result() == scored(tight, 3)
    assert tight.metrics()["retractions_total"] > before


@streams
def test_tokens_have_the_same_logprobs_after_retractions(roomy: Bench, tight: Bench, stream: bool) -> None:
    before = tight.metrics()["retractions_total"]
    calls = [lambda: tight.ask(UNEVEN, max_tokens=60, logprobs=5, stream=stream)] * 4
    alone = roomy.ask(UNEVEN, max_tokens=60, logprobs=5)
    for future in tight.at_once(calls):
        assert future.result().choices == alone.choices
    assert tight.metrics()["retractions_total"] > before
    form = alone.only.logprobs
    assert form is not None
    best = [logprobs_of(step, len(RAW)).max() for step in UNEVEN.says]
    assert form["token_logprobs"] == [about(logprob) for logprob in best]
    assert [len(tops) for tops in form["top_logprobs"]] == [5] * 60


def chat(bench: Bench, stream: bool, **fields: Any) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """Text, log-probabilities and counts of a chat's answer."""
    body = {"messages": MESSAGES, "temperature": 0, **fields}
    if not stream:
        answer = bench.asker.post("/v1/chat/completions", body)
        (choice,) = answer["choices"]
        return choice["message"]["content"], choice["logprobs"]["content"], answer["usage"]
    *chunks, last = bench.asker.chunks(body, "/v1/chat/completions")
    said = [chunk["choices"][0] for chunk in chunks]
    text = "".join(choice["delta"].get("content", "") for choice in said)
    told = [entry for choice in said if choice.get("logprobs") for entry in choice["logprobs"]["content"]]
    return text, told, last["usage"]


@streams
def test_parts_of_characters_are_told_by_their_bytes(roomy: Bench, stream: bool) -> None:
    text, told, usage = chat(roomy, stream, logprobs=True, top_logprobs=2)
    assert text == CHAT.text
    assert [bytes(entry["bytes"]) for entry in told] == [RAW[token] for token in CHAT.ids]
    assert [entry["token"] for entry in told] == ["a", *"\ufffd\ufffd\ufffd\ufffd\ufffd", "<|eos|>"]
    first = logprobs_of(CHAT.says[0], len(RAW))
    tops = told[0]["top_logprobs"]
    assert [bytes(top["bytes"]) for top in tops] == [b"a", RAW[CHAT.ids[1]]]
    assert [top["logprob"] for top in tops] == [about(first[97]), about(first[CHAT.ids[1]])]
    assert usage["prompt_tokens"] == 1 + len(CHAT.prompt)
    assert usage["completion_tokens"] == len(CHAT.ids)


def test_every_chunk_has_the_counts_so_far(roomy: Bench) -> None:
    body = {"prompt": roomy.shelf.prompt(LONG), "temperature": 0, "max_tokens": 40, "return_token_ids": True}
    *chunks, last = roomy.asker.chunks({**body, "stream_options": {"continuous_usage_stats": True}})
    so_far = 0
    for chunk in chunks:
        so_far += len(chunk["choices"][0].get("token_ids") or [])
        assert chunk["usage"]["prompt_tokens"] == 3
        assert chunk["usage"]["completion_tokens"] == so_far
    assert so_far == last["usage"]["completion_tokens"] == 40


PENALTIES = {"frequency_penalty": 0.37, "presence_penalty": 0.21, "repetition_penalty": 1.13}


def penalised(step: Any, seen: Counter[int], prompt: Sequence[int]) -> int:
    """The likeliest token under `PENALTIES`; asserts that it is clearly so."""
    logits = dict(step)
    for token in {*seen, *prompt} & {*logits}:
        logits[token] *= (
            1 / PENALTIES["repetition_penalty"] if logits[token] > 0 else PENALTIES["repetition_penalty"]
        )
    for token, count in seen.items():
        logits[token] -= PENALTIES["frequency_penalty"] * count + PENALTIES["presence_penalty"]
    first, second = sorted(logits, key=lambda token: -logits[token])[:2]
    assert logits[first] - logits[second] > 1e-4
    return first


def test_penalties_see_all_history_and_nothing_else_whatever_happens(roomy: Bench, tight: Bench) -> None:
    seen: Counter[int] = Counter()
    expected = []
    for step in UNEVEN.says:
        expected.append(penalised(step, seen, UNEVEN.prompt))
        seen[expected[-1]] += 1
    assert len(seen) > 10
    assert roomy.ask(UNEVEN, max_tokens=60, **PENALTIES).only.ids == expected
    before = tight.metrics()["retractions_total"]
    for future in tight.at_once([lambda: tight.ask(UNEVEN, max_tokens=60, **PENALTIES)] * 5):
        assert future.result().only.ids == expected
    assert tight.metrics()["retractions_total"] > before


def test_sampled_logprobs_are_the_models_own(roomy: Bench) -> None:
    answer = roomy.ask(COIN, temperature=0.7, seed=3, top_p=0.9, logprobs=0, min_tokens=10)
    form = answer.only.logprobs
    assert form is not None
    own = logprobs_of(COIN.says[0], len(RAW))
    assert form["token_logprobs"] == [about(own[token]) for token in answer.only.ids]
