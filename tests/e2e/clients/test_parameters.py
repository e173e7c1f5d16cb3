"""What a parameter does to the answers of the real model, against transformers' logits."""

import pytest
import torch
from e2e.clients.told import told
from e2e.serving import MODEL

PROMPT = "Roses are red,\nviolets are blue,\n"
TOKENS = 24


@pytest.fixture(scope="module")
def prompt(oracle):
    return oracle.ids(PROMPT)


@pytest.fixture(scope="module")
def write(client, prompt):
    """The ids of a greedy answer."""

    def ids(fields):
        ask = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": TOKENS}
        extra = {"return_token_ids": True, "ignore_eos": True} | fields
        (choice,) = told(client.completions.create(**ask, extra_body=extra))
        return choice["token_ids"]

    return ids


@pytest.fixture(scope="module")
def plain(write):
    return write({})


def counts(ids, like):
    return torch.bincount(torch.tensor(ids, dtype=torch.int64), minlength=len(like)).to(like.dtype)


def repeated(prompt, penalty):
    def bend(logits, so_far):
        met = counts(prompt + so_far, logits) > 0
        return torch.where(met, torch.where(logits > 0, logits / penalty, logits * penalty), logits)

    return bend


def banned(prompt, phrase):
    """The last token of `phrase` is banned where the others have just come."""

    def bend(logits, so_far):
        *before, last = phrase
        if (prompt + so_far)[len(prompt + so_far) - len(before) :] == before:
            logits[last] = -torch.inf
        return logits

    return bend


def check(oracle, prompt, answer, bend, plain):
    assert len(answer) == TOKENS
    assert answer != plain, "the parameter changed nothing: choose another value"
    assert oracle.greedy(prompt, answer, bend) == answer


def test_without_any_the_answer_is_greedy(oracle, prompt, plain):
    assert oracle.greedy(prompt, plain, lambda logits, _: logits) == plain


def test_presence_penalty_counts_the_output_alone(oracle, prompt, write, plain):
    answer = write({"presence_penalty": 1.5})
    check(oracle, prompt, answer, lambda row, ids: row - 1.5 * (counts(ids, row) > 0), plain)


def test_frequency_penalty_counts_every_time(oracle, prompt, write, plain):
    answer = write({"frequency_penalty": 1.0})
    check(oracle, prompt, answer, lambda row, ids: row - counts(ids, row), plain)


def test_repetition_penalty_counts_the_prompt_too(oracle, prompt, write, plain):
    answer = write({"repetition_penalty": 1.2})
    check(oracle, prompt, answer, repeated(prompt, 1.2), plain)


def test_repetition_penalty_is_that_of_transformers_generate(oracle, prompt, write):
    out = oracle.model.generate(
        torch.tensor([prompt]), max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False,
        repetition_penalty=1.2,
    )  # fmt: skip
    assert (
        write({"repetition_penalty": 1.2, "ignore_eos": False, "min_tokens": TOKENS})
        == out[0, len(prompt) :].tolist()
    )


def test_all_penalties_at_once(oracle, prompt, write, plain):
    fields = {"repetition_penalty": 1.1, "frequency_penalty": 0.7, "presence_penalty": 0.4}

    def bend(row, ids):
        row = repeated(prompt, 1.1)(row, ids)
        return row - 0.7 * counts(ids, row) - 0.4 * (counts(ids, row) > 0)

    check(oracle, prompt, write(fields), bend, plain)


def test_logit_bias_is_added(oracle, prompt, write, plain):
    bias = {plain[0]: -100.0, plain[5]: -3.0, 1234: 2.5}

    def bend(row, _):
        for token, value in bias.items():
            row[token] += value
        return row

    check(oracle, prompt, write({"logit_bias": bias}), bend, plain)


def test_allowed_token_ids_are_the_only_ones(oracle, prompt, write, plain):
    allowed = sorted({*plain[:3], 28, 30, 284, 260})

    def bend(row, _):
        masked = torch.full_like(row, -torch.inf)
        masked[allowed] = row[allowed]
        return masked

    check(oracle, prompt, write({"allowed_token_ids": allowed}), bend, plain)


def test_a_bad_word_of_one_token_never_comes(oracle, prompt, write, plain):
    word = next(token for token in plain if oracle.tokenizer.decode([token]).startswith(" "))
    text = oracle.tokenizer.decode([word]).strip()
    answer = write({"bad_words": [text]})
    assert word in plain
    assert word not in answer
    assert oracle.ids(text)[0] not in answer


def test_a_bad_phrase_is_cut_before_its_last_token(oracle, prompt, write, plain):
    start = next(
        i for i in range(len(plain) - 1) if oracle.tokenizer.decode(plain[i : i + 1]).startswith(" ")
    )
    phrase = plain[start : start + 2]
    text = oracle.tokenizer.decode(phrase).strip()
    answer = write({"bad_words": [text]})
    assert answer[: start + 1] == plain[: start + 1]
    assert phrase not in [answer[i : i + 2] for i in range(len(answer) - 1)]
    check(oracle, prompt, answer, banned(prompt, phrase), plain)


def test_end_of_sequence_waits_for_min_tokens(client, oracle):
    """Against the strongest bias there is; then it comes at once."""
    end = oracle.tokenizer.eos_token_id
    ask = {
        "model": MODEL,
        "prompt": PROMPT,
        "temperature": 0,
        "max_tokens": 20,
        "logit_bias": {str(end): 100},
    }
    extra = {"min_tokens": 7, "return_token_ids": True}
    (choice,) = told(client.completions.create(**ask, extra_body=extra))
    assert choice["token_ids"].index(end) == 7
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)
    assert len(choice["token_ids"]) == 8


def test_a_stop_string_cuts_text_and_tokens_at_one_place(client, oracle, plain):
    text = oracle.tokenizer.decode(plain)
    stop = text[15:22]
    ask = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": TOKENS, "stop": stop}
    extra = {"return_token_ids": True, "ignore_eos": True}
    (cut,) = told(client.completions.create(**ask, logprobs=0, extra_body=extra))
    (kept,) = told(client.completions.create(**ask, extra_body=extra | {"include_stop_str_in_output": True}))
    assert cut["text"] == text[: text.index(stop)]
    assert kept["text"] == cut["text"] + stop
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", stop)
    assert cut["token_ids"] == plain[: len(cut["token_ids"])]
    assert len(cut["logprobs"]) == len(cut["token_ids"])


def test_a_stop_token_ends_the_answer_unseen(client, oracle, plain):
    ask = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": TOKENS}
    at = plain.index(plain[6])
    extra = {"return_token_ids": True, "stop_token_ids": [plain[6]]}
    (choice,) = told(client.completions.create(**ask, extra_body=extra))
    assert choice["token_ids"] == plain[: at + 1]
    assert choice["text"] == oracle.tokenizer.decode(plain[:at])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", plain[6])


def test_special_tokens_are_shown_on_request(client, oracle):
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    ask = {"model": MODEL, "messages": chat, "temperature": 0, "max_tokens": 20}
    for shown in (True, False):
        extra = {"skip_special_tokens": not shown, "ignore_eos": True, "return_token_ids": True}
        (choice,) = told(client.chat.completions.create(**ask, extra_body=extra))
        assert oracle.tokenizer.eos_token_id in choice["token_ids"]
        assert ("<|im_end|>" in choice["text"]) is shown
