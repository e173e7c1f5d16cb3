"""Greedy tokens equal those of transformers in float32 on the same stored weights, however asked for.

The oracle is teacher-forced: one forward pass of transformers over prompt + answer, whose argmax at every
position must be the next token. By induction that is what its greedy decoding yields.
"""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch
from e2e.prompts import PROMPTS
from e2e.reference import reference_model

TOKENS = 64


@pytest.fixture(scope="module")
def reference(model_dir):
    return reference_model(model_dir)


@pytest.fixture(scope="module")
def alone(server):
    """Every prompt by itself on an idle server: prompt ids and answer ids."""
    answers = [server.complete(prompt, max_tokens=TOKENS)["choices"][0] for prompt in PROMPTS]
    return [(answer["prompt_token_ids"], answer["token_ids"]) for answer in answers]


def token_ids(server, prompt):
    return server.complete(prompt, max_tokens=TOKENS)["choices"][0]["token_ids"]


def test_every_token_is_the_one_transformers_would_choose(alone, reference):
    for prompt_ids, answer_ids in alone:
        with torch.inference_mode():
            logits = reference(torch.tensor([prompt_ids + answer_ids])).logits[0]
        assert logits[len(prompt_ids) - 1 : -1].argmax(-1).tolist() == answer_ids
        assert len(answer_ids) == TOKENS or answer_ids[-1] in (0, 2)


def test_transformers_generate_agrees_on_the_first_prompts(alone, reference):
    for prompt_ids, answer_ids in alone[:2]:
        out = reference.generate(torch.tensor([prompt_ids]), max_new_tokens=TOKENS, do_sample=False)
        assert out[0, len(prompt_ids) :].tolist() == answer_ids


def test_twenty_at_once_give_the_same_tokens(server, alone):
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        together = list(pool.map(lambda prompt: token_ids(server, prompt), PROMPTS))
    assert together == [answer for _, answer in alone]


def test_a_prefix_hit_gives_the_same_tokens(server, alone):
    for (prompt_ids, answer_ids), prompt in zip(alone, PROMPTS, strict=True):
        again = server.complete(prompt, max_tokens=TOKENS)
        assert again["choices"][0]["token_ids"] == answer_ids
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == len(prompt_ids) - 1


def test_a_stream_carries_the_same_tokens(server, alone):
    for (_, answer_ids), prompt in zip(alone[:6], PROMPTS, strict=False):
        body = {"model": "SmolLM2-135M-Instruct", "prompt": prompt, "temperature": 0, "max_tokens": TOKENS}
        body |= {"stream": True, "return_token_ids": True}
        streamed = []
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=None) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    streamed += json.loads(line[6:])["choices"][0].get("token_ids") or []
        assert streamed == answer_ids


@pytest.mark.parametrize(
    ("chunk", "page_size", "seqs"), [(1, 16, 1), (1, 1, 1), (7, 1, 4), (7, 16, 4), (64, 1, 20), (64, 16, 20)]
)
def test_chunk_and_page_size_do_not_change_the_tokens(start, alone, chunk, page_size, seqs):
    server = start(
        "--max-batched-tokens", str(chunk), "--page-size", str(page_size), "--max-seqs", str(seqs),
        "--max-model-len", "512", "--kv-memory", "12000tokens",
    )  # fmt: skip
    chosen = range(len(PROMPTS)) if seqs > 1 else range(0, len(PROMPTS), 4)
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        answers = list(pool.map(lambda i: token_ids(server, PROMPTS[i]), chosen))
    server.stop()
    assert answers == [alone[i][1] for i in chosen]


def test_planning_without_overlap_gives_the_same_tokens(start, alone):
    server = start("--no-overlap")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda prompt: token_ids(server, prompt), PROMPTS[:8]))
    server.stop()
    assert answers == [answer for _, answer in alone[:8]]
