"""Every case, byte for byte: whole and streamed, alone and among seven others, in every kind of server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from e2e.scripted.asking import Answer
from e2e.scripted.cases import CASES
from e2e.scripted.scripts import Case
from e2e.scripted.shared import SHELF
from e2e.scripted.trials import WAYS, Bench, launched

COMPANY = 8

cases = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
streams = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
logprobs = pytest.mark.parametrize("logprobs", [None, 2], ids=["", "logprobs"])


@pytest.fixture(scope="module", params=WAYS.values(), ids=WAYS)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with launched(SHELF, tmp_path_factory.mktemp("model"), *request.param) as bench:
        yield bench
        bench.rest()


@pytest.fixture(scope="module")
def crowds(bench: Bench) -> dict[tuple[Case, bool, int | None], Future[Answer]]:
    """Answers to all cases, asked for eight at a time."""
    answers = {}
    for start in range(0, len(CASES), COMPANY):
        group = [CASES[(start + i) % len(CASES)] for i in range(COMPANY)]
        for stream in (False, True):
            for count in (None, 2):
                futures = bench.ask_together(group, stream=stream, logprobs=count)
                answers |= {
                    (case, stream, count): future for case, future in zip(group, futures, strict=True)
                }
    return answers


@pytest.fixture(scope="module")
def backlog(bench: Bench) -> dict[tuple[Case, bool], Future[Answer]]:
    """Answers to all cases, each of which the device is through with before the detokenizer begins."""
    answers = {}
    for stream in (False, True):
        futures = bench.ask_behind("detokenizer", CASES, stream=stream, logprobs=2)
        answers |= {(case, stream): future for case, future in zip(CASES, futures, strict=True)}
    return answers


@cases
@streams
@logprobs
def test_alone(bench: Bench, case: Case, stream: bool, logprobs: int | None) -> None:
    assert bench.ask(case, stream=stream, logprobs=logprobs) == bench.right(case, logprobs)


@cases
@streams
@logprobs
def test_among_others(
    bench: Bench,
    crowds: dict[tuple[Case, bool, int | None], Future[Answer]],
    case: Case,
    stream: bool,
    logprobs: int | None,
) -> None:
    assert crowds[case, stream, logprobs].result() == bench.right(case, logprobs)


@cases
@streams
def test_behind_a_detokenizer_that_is_late(
    bench: Bench, backlog: dict[tuple[Case, bool], Future[Answer]], case: Case, stream: bool
) -> None:
    """It gets all tokens at once: those after a stop string too, which are nothing to anybody."""
    assert backlog[case, stream].result() == bench.right(case, 2)
