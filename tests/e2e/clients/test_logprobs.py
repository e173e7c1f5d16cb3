"""Log-probabilities of prompts and answers equal transformers' and depend on nothing but the tokens."""

import pytest
import torch
from e2e.prompts import PROMPTS

TEXT = "\n".join(PROMPTS)
TOP = 5
CLOSE = 1e-3


def score(server, prompt, **fields):
    """One request that only scores the prompt: its choice."""
    body = {"max_tokens": 0, "echo": True, "logprobs": TOP, "return_tokens_as_token_ids": True} | fields
    answer = server.complete(prompt, **body)
    assert answer["usage"]["completion_tokens"] == 0
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    return answer["choices"][0]


def ids_of(tokens):
    return [int(token.removeprefix("token_id:")) for token in tokens]


@pytest.fixture(scope="module")
def ids(oracle):
    return oracle.ids(TEXT)


@pytest.fixture(scope="module")
def exact(oracle, ids):
    """float32[tokens - 1, vocabulary]: what follows each token."""
    return oracle.logprobs(ids)[:-1]


@pytest.fixture(scope="module")
def scored(server, ids):
    return score(server, ids)


def test_echoed_logprobs_are_transformers(scored, ids, exact):
    form = scored["logprobs"]
    assert ids_of(form["tokens"]) == scored["prompt_token_ids"] == ids
    assert form["token_logprobs"][0] is form["top_logprobs"][0] is None
    wanted = exact.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(form["token_logprobs"][1:]), wanted, atol=CLOSE, rtol=0)


def test_the_likeliest_tokens_are_transformers(scored, exact):
    values, likeliest = exact.topk(TOP)
    for i, table in enumerate(scored["logprobs"]["top_logprobs"][1:]):
        ranked = sorted(table.items(), key=lambda item: -item[1])[:TOP]
        assert ids_of(name for name, _ in ranked)[0] == likeliest[i, 0]
        assert [value for _, value in ranked] == pytest.approx(values[i].tolist(), abs=CLOSE)


def test_echoed_tokens_spell_the_text(server):
    choice = score(server, TEXT, return_tokens_as_token_ids=False)
    form = choice["logprobs"]
    assert choice["text"] == TEXT
    assert choice["finish_reason"] == "length"
    assert len(form["tokens"]) == len(choice["prompt_token_ids"])
    for token, offset in zip(form["tokens"], form["text_offset"], strict=True):
        assert token.startswith("bytes:") or TEXT[offset : offset + len(token)] == token


def test_prompt_logprobs_are_the_echoed_ones_with_their_ranks(server, ids, exact, scored):
    answer = server.complete(ids, max_tokens=1, prompt_logprobs=TOP)["choices"][0]
    first, *tables = answer["prompt_logprobs"]
    assert first is None
    entries = [tables[i][str(token)] for i, token in enumerate(ids[1:])]
    assert [entry["logprob"] for entry in entries] == scored["logprobs"]["token_logprobs"][1:]
    for i, (entry, token) in enumerate(zip(entries, ids[1:], strict=True)):
        margin = exact[i] - exact[i, token]  # ranks may differ among tokens that are closer than rounding
        assert (margin > CLOSE).sum() < entry["rank"] <= 1 + (margin > -CLOSE).sum()
        assert sorted(table["rank"] for table in tables[i].values())[:TOP] == list(range(1, TOP + 1))


def test_a_second_request_whose_prompt_is_cached_gets_the_same_bits(server, ids, scored):
    assert server.complete(ids, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert score(server, ids) == scored


@pytest.mark.parametrize("chunk", [7, 64])
def test_the_size_of_chunks_changes_no_bit(start, ids, scored, chunk):
    server = start("--max-batched-tokens", str(chunk), "--max-seqs", "4", "--kv-memory", "2000tokens")
    assert score(server, ids) == scored
    server.stop()


def test_logprobs_of_an_answer_are_transformers_and_those_of_the_same_tokens_in_a_prompt(server, oracle):
    prompt = oracle.ids(PROMPTS[1])
    ask = {"max_tokens": 24, "logprobs": TOP, "return_tokens_as_token_ids": True}
    answer = server.complete(prompt, **ask)["choices"][0]
    rows = oracle.logprobs(prompt + answer["token_ids"])[len(prompt) - 1 : -1]
    form = answer["logprobs"]
    assert ids_of(form["tokens"]) == answer["token_ids"]
    assert form["token_logprobs"] == pytest.approx(rows.max(-1).values.tolist(), abs=CLOSE)
    echoed = score(server, prompt + answer["token_ids"])["logprobs"]
    assert echoed["token_logprobs"][len(prompt) :] == form["token_logprobs"]
    assert echoed["top_logprobs"][len(prompt) :] == form["top_logprobs"]
