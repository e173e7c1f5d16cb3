"""Beam search is that of transformers: the same beams, in the same order, with the same scores."""

import itertools

import pytest
import torch
from transformers import LogitsProcessor

HOT = "Reply with one word: the opposite of hot."
ASKED = [(HOT, ""), ("Answer yes or no: is the sky blue?", ""), (HOT, "Cold")]
"""Questions, and how the answer begins."""
TOKENS = 14
KINDS = list(itertools.product((2, 4), (0.0, 1.0, 2.0), (True, False, "never")))
TIE = 1e-3
"""Candidates whose sums of log-probabilities are closer than this might change places by rounding.

That of one token differs from transformers' by 5e-5 at most, and by 1e-5 on average; of all, by 7e-4 at most.
"""


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
    beams = list(zip(rows, found.sequences_scores.tolist(), strict=True))
    ranks = [
        (score - next_score) * min(len(row), len(next_row)) ** length_penalty
        for (row, score), (next_row, next_score) in itertools.pairwise(beams)
    ]
    return beams, min(margins.smallest, *ranks)


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


def agreed(server, oracle, asked, kind):
    """The beams of both, which are the same."""
    question, begun = asked
    prompt = oracle.asked(question) + oracle.ids(begun)
    expected, margin = searched(oracle, prompt, *kind, TOKENS)
    assert margin > TIE, "a near tie: choose another prompt"
    got = beams_of(server, prompt, *kind, TOKENS)
    assert [ids for ids, _ in got] == [ids for ids, _ in expected]
    assert [score for _, score in got] == pytest.approx([score for _, score in expected], abs=1e-3)
    return got


@pytest.mark.parametrize(("number", "kind"), list(enumerate(KINDS)))
def test_beams_are_those_of_transformers(server, oracle, number, kind):
    agreed(server, oracle, ASKED[(number + number // 3) % 3], kind)


def test_how_it_stops_decides_what_is_found(server, oracle):
    hasty, thorough = (agreed(server, oracle, ASKED[2], (2, 2.0, kind)) for kind in (True, False))
    assert [len(ids) for ids, _ in hasty] == [7, 2]
    assert [len(ids) for ids, _ in thorough] == [14, 12]
    hopeless, never = (agreed(server, oracle, ASKED[0], (2, 2.0, kind)) for kind in (False, "never"))
    assert [len(ids) for ids, _ in hopeless] == [8, 8]
    assert [len(ids) for ids, _ in never] == [8, 14]
