"""Log-probabilities through the runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from stretto.kernels.logprobs import logprobs
from stretto.roles import messages as m
from stretto.roles.executor import scorer

IDS = torch.randint(256, (150,), generator=torch.Generator().manual_seed(3)).tolist()


def bits(logits: torch.Tensor, tokens: Sequence[int], width: int) -> list[bytes]:
    """Values, ranks, ids and values of the likeliest, as they are in messages."""
    rows = len(logits)
    values, ranks = torch.empty(rows), torch.empty(rows, dtype=torch.int32)
    ids, top = torch.empty(rows, width, dtype=torch.int32), torch.empty(rows, width)
    logprobs(logits.contiguous(), torch.tensor(tokens, dtype=torch.int32), values, ranks, ids, top)
    return [column.numpy().tobytes() for column in (values, ranks, ids, top)]


def row_bits(row: m.RowLogprobs) -> list[bytes]:
    value, rank = np.float32(row.logprob), np.int32(row.rank)
    return [value.tobytes(), rank.tobytes(), row.top_ids, row.top]


def logits_after_each(model: Any, make_bench: Any, recorder: Any) -> torch.Tensor:
    """Logits after each of IDS, from steps of one token."""
    recorded = recorder(model)
    bench = make_bench(recorded, slots=1)
    for at, token in enumerate(IDS):
        bench.step([(0, [token], True)], admits=None if at else {0: m.Sampling()})
    return torch.cat(recorded.calls)


def score(bench: Any, size: int, width: int, samples: bool = True) -> list[bytes]:
    """The prompt's log-probabilities, fed in chunks of `size` tokens, the parts of each column joined."""
    parts: list[m.ChunkLogprobs] = []
    wanted = m.Sampling(prompt_logprobs=width)
    for at in range(0, len(IDS), size):
        ids, end = IDS[at : at + size], at + size
        last = end >= len(IDS)
        chunk = (0, ids, last and samples)
        label = -1 if last else IDS[end]
        admits = None if at else {0: wanted}
        bench.runner.launch(bench.plan([chunk], admits=admits, scored=[(0, label)]))
        parts += bench.result().prompt_logprobs
    assert all(part.chunk == 0 for part in parts)
    columns = zip(*((part.logprobs, part.ranks, part.top_ids, part.top) for part in parts), strict=True)
    return [b"".join(column) for column in columns]


@pytest.mark.parametrize("size", [1, 7, 64, 65, 150])
@pytest.mark.parametrize("width", [0, 5])
def test_a_prompt_scores_the_same_however_it_is_chunked(
    tiny: Any, make_bench: Any, recorder: Any, size: int, width: int
) -> None:
    expected = bits(logits_after_each(tiny, make_bench, recorder)[:-1], IDS[1:], width)
    assert score(make_bench(tiny), size, width) == expected
    assert score(make_bench(tiny, page_size=1), size, width, samples=False) == expected


def test_scored_logits_come_in_blocks(tiny: Any, make_bench: Any, recorder: Any) -> None:
    model = recorder(tiny)
    score(make_bench(model), 150, 0, samples=False)
    assert [len(logits) for logits in model.calls] == [64, 64, 21]
    assert scorer.BLOCK == 64


@pytest.mark.parametrize("widths", [(3, 3), (0, 7), (None, 4), (2, None)])
def test_sampled_tokens_report_what_their_slots_want(
    tiny: Any, make_bench: Any, recorder: Any, widths: tuple[int | None, ...]
) -> None:
    model = recorder(tiny)
    bench = make_bench(model)
    wanted = {slot: m.Sampling(temperature=1.0, logprobs=width) for slot, width in enumerate(widths)}
    for step in range(3):
        chunks = [(slot, [5, slot], True) for slot in wanted] if step == 0 else []
        admits, decodes = (wanted, []) if step == 0 else (None, [0, 1])
        bench.runner.launch(bench.plan(chunks, decodes, admits=admits))
        result = bench.result()
        tokens = np.frombuffer(result.tokens, np.int32).tolist()
        reported = [(row, width) for row, width in enumerate(widths) if width is not None]
        assert [row.row for row in result.logprobs] == [row for row, _ in reported]
        for got, (row, width) in zip(result.logprobs, reported, strict=True):
            assert row_bits(got) == bits(model.calls[-1][row : row + 1], [tokens[row]], width)


def test_values_are_those_of_the_model_whatever_is_done_to_its_logits(
    tiny: Any, make_bench: Any, recorder: Any
) -> None:
    model = recorder(tiny)
    bench = make_bench(model)
    bias = m.Controls(
        bias_ids=np.array([9], np.int32).tobytes(), bias_values=np.array([100], np.float32).tobytes()
    )
    wanted = m.Sampling(temperature=0.3, top_k=2, controls=bias, logprobs=4)
    chunks = [(0, [1, 2], True), (1, [1, 2], True)]
    bench.runner.launch(bench.plan(chunks, admits={0: wanted, 1: m.Sampling(logprobs=4)}))
    controlled, plain = bench.result().logprobs
    raw = tiny_logits(tiny, make_bench, recorder, [1, 2])
    assert row_bits(controlled) == bits(raw, [9], 4)
    assert row_bits(plain) == bits(raw, raw.argmax(1).tolist(), 4)


def tiny_logits(model: Any, make_bench: Any, recorder: Any, ids: Sequence[int]) -> torch.Tensor:
    recorded = recorder(model)
    make_bench(recorded, slots=1).step([(0, ids, True)], admits={0: m.Sampling()})
    return recorded.calls[0]


def test_sampled_rows_and_scored_chunks_share_a_step(tiny: Any, make_bench: Any, recorder: Any) -> None:
    bench = make_bench(tiny)
    bench.step([(0, [4, 5], True)], admits={0: m.Sampling(logprobs=2)})
    both = m.Sampling(logprobs=1, prompt_logprobs=3)
    chunks = [(1, [7], False), (2, IDS[:5], True), (3, IDS[:9], False)]
    admits = {1: m.Sampling(), 2: both, 3: m.Sampling(prompt_logprobs=6)}
    bench.runner.launch(bench.plan(chunks, [0], admits=admits, scored=[(1, -1), (2, IDS[9])]))
    result = bench.result()
    after = logits_after_each(tiny, make_bench, recorder)
    tokens = np.frombuffer(result.tokens, np.int32).tolist()
    assert [row.row for row in result.logprobs] == [0, 1]
    assert row_bits(result.logprobs[0]) == bits(after[4:5], tokens[:1], 1)
    first, second = result.prompt_logprobs
    assert (first.chunk, second.chunk) == (1, 2)
    assert [first.logprobs, first.ranks, first.top_ids, first.top] == bits(after[:4], IDS[1:5], 3)
    assert [second.logprobs, second.ranks, second.top_ids, second.top] == bits(after[:9], IDS[1:10], 6)


def test_a_prompt_of_one_token_has_nothing_to_score(tiny: Any, make_bench: Any) -> None:
    bench = make_bench(tiny)
    wanted = m.Sampling(prompt_logprobs=3)
    bench.runner.launch(bench.plan([(0, [4], False)], admits={0: wanted}, scored=[(0, -1)]))
    assert bench.result().prompt_logprobs == [m.ChunkLogprobs(0, b"", b"")]


def test_no_more_alternatives_come_than_there_are_tokens(tiny: Any, make_bench: Any) -> None:
    bench = make_bench(tiny)
    bench.runner.launch(bench.plan([(0, [4], True)], admits={0: m.Sampling(logprobs=1000)}))
    (row,) = bench.result().logprobs
    assert sorted(np.frombuffer(row.top_ids, np.int32).tolist()) == list(range(256))


def test_steps_in_flight_keep_their_details_apart(tiny: Any, make_bench: Any) -> None:
    plans = [{"chunks": [(0, [4], True)], "admits": {0: m.Sampling(logprobs=2)}}, *[{"decodes": [0]}] * 4]
    alone, expected = make_bench(tiny), []
    for plan in plans:
        alone.runner.launch(alone.plan(**plan))
        expected.append(alone.result().logprobs)
    assert [result.logprobs for result in make_bench(tiny).run_ahead(plans)] == expected
