"""Beam search is that of transformers: the same beams, in the same order, with the same scores."""

import itertools

import pytest
import torch
from transformers import LogitsProcessor

QUESTIONS = [
    "Reply with one word: the opposite of hot.",
    "Answer yes or no: is the sky blue?",
    "Who wrote Hamlet?",
]
TOKENS = 14
KINDS = list(itertools.product((2, 4), (0.0, 1.0, 2.0), (True, False, "never")))
TIE = 2e-3
"""Candidates whose sums of log-probabilities are closer than this might change places by rounding."""


class Margins(LogitsProcessor):
    """Looks on: how close a candidate that was kept came, at any step, to one that was not."""

    def __init__(self, width, ends):
        self.width, self.ends, self.smallest = width, ends, float("inf")
        self._sums = {}

    def __call__(self, ids, logprobs):
        rows = {tuple(row): i for i, row in enumerate(ids.tolist())}  # equal rows: the first step
        sums = torch.tensor([self._sums.get(row, 0.0) for row in rows])
        totals = logprobs[list(rows.values())] + sums[:, None]
        values, places = totals.flatten().topk(3 * self.width)
        self._look(values.tolist(), [int(place) % logprobs.shape[1] for place in places])
        known = list(rows)
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            row, token = divmod(place, logprobs.shape[1])
            self._sums[(*known[row], token)] = value
        return logprobs

    def _look(self, values, tokens):
        """Two borders: of the beams that go on, and of the first `width` candidates, where an end counts."""
        going = [value for value, token in zip(values, tokens, strict=True) if token not in self.ends]
        gaps = [going[self.width - 1] - going[self.width]]
        if self.ends & set(tokens[: self.width + 1]):
            gaps.append(values[self.width - 1] - values[self.width])
        self.smallest = min(self.smallest, *gaps)


def searched(oracle, prompt, width, length_penalty, early_stopping, max_tokens):
    """Transformers' beams as (ids, score), best first, and the smallest margin of its decisions."""
    margins = Margins(width, {oracle.tokenizer.eos_token_id})
    found = oracle.model.generate(
        torch.tensor([prompt]), num_beams=width, num_return_sequences=width, length_penalty=length_penalty,
        early_stopping=early_stopping, max_new_tokens=max_tokens, do_sample=False, output_scores=True,
        return_dict_in_generate=True, logits_processor=[margins],
    )  # fmt: skip
    end = oracle.tokenizer.eos_token_id
    rows = [_until(end, row) for row in found.sequences[:, len(prompt) :].tolist()]
    return list(zip(rows, found.sequences_scores.tolist(), strict=True)), margins.smallest


def _until(end, row):
    """Without what pads a beam that ended early."""
    return row[: row.index(end) + 1] if end in row else row


def beams_of(server, prompt, width, length_penalty, early_stopping, max_tokens):
    """The server's beams as (ids, score), best first."""
    answer = server.complete(
        prompt, use_beam_search=True, n=width, length_penalty=length_penalty, early_stopping=early_stopping,
        max_tokens=max_tokens, logprobs=0,
    )  # fmt: skip
    return [
        (ids, sum(choice["logprobs"]["token_logprobs"]) / len(ids) ** length_penalty)
        for choice in answer["choices"]
        for ids in [choice["token_ids"]]
    ]


@pytest.mark.parametrize(("number", "kind"), list(enumerate(KINDS)))
def test_beams_are_those_of_transformers(server, oracle, number, kind):
    prompt = oracle.asked(QUESTIONS[(number + number // 3) % 3])
    expected, margin = searched(oracle, prompt, *kind, TOKENS)
    assert margin > TIE, "a near tie: choose another prompt"
    got = beams_of(server, prompt, *kind, TOKENS)
    assert [ids for ids, _ in got] == [ids for ids, _ in expected]
    assert [score for _, score in got] == pytest.approx([score for _, score in expected], abs=1e-3)
