"""The cases of a SentencePiece vocabulary, whole and streamed, one by one and all at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.scripted.piece_cases import PIECE_CASES, PIECE_SHELF
from e2e.scripted.scripts import Case
from e2e.scripted.trials import WAYS, Bench, launched

streams = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
logprobs = pytest.mark.parametrize("logprobs", [None, 2], ids=["", "logprobs"])


@pytest.fixture(scope="module", params=["ahead-16", "in step-1"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with launched(PIECE_SHELF, tmp_path_factory.mktemp("model"), *WAYS[request.param]) as bench:
        yield bench
        bench.rest()


@pytest.mark.parametrize("case", PIECE_CASES, ids=[case.name for case in PIECE_CASES])
@streams
@logprobs
def test_alone(bench: Bench, case: Case, stream: bool, logprobs: int | None) -> None:
    assert bench.ask(case, stream=stream, logprobs=logprobs) == bench.right(case, logprobs)


@streams
@logprobs
def test_all_at_once(bench: Bench, stream: bool, logprobs: int | None) -> None:
    answers = bench.ask_together(PIECE_CASES, stream=stream, logprobs=logprobs)
    for case, answer in zip(PIECE_CASES, answers, strict=True):
        assert answer.result() == bench.right(case, logprobs)
