"""What is known of requests already."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from stretto.roles import messages as m
from stretto.roles.scheduler import recall


def int32(*values: int) -> bytes:
    return np.array(values, np.int32).tobytes()


def request(uid: int, arrived: float = 0.0, **fields: Any) -> m.Request:
    sampling = fields.pop("sampling", m.Sampling())
    return m.Request(uid, arrived, int32(1), None, (7,), sampling, m.Output(0, True), **fields)


def held(uid: int, of: m.Request, *tokens: int) -> m.Held:
    return m.Held(uid, recall.kept(of), int32(*tokens))


def test_requests_come_in_the_order_of_their_arrival_with_what_they_have() -> None:
    late, early = request(3, 9.0), request(5, 1.0)
    found = list(recall.requests_of([held(3, late, 8), held(5, early)]))
    assert found == [(early, [5]), (msgspec.structs.replace(late, generated=int32(8)), [3])]


def test_the_choices_of_a_search_bring_it_once_and_from_the_beginning() -> None:
    search = request(4, beams=m.Beams(3, 3))
    assert list(recall.requests_of([held(6, search, 1), held(4, search)])) == [(search, [4, 6])]


def test_a_large_request_is_not_kept() -> None:
    prompt = bytes(recall.MAX_KEPT_BYTES)
    assert recall.kept(msgspec.structs.replace(request(1), prompt_ids=prompt)) == b""


@pytest.mark.parametrize(
    ("known", "room", "kept"),
    [((1, 2, 3), 9, [1, 2, 3]), ((1, 2, 3), 3, [1, 2]), ((1, 7, 3), 9, [1]), ((7,), 9, []), ((1,), 0, [])],
)
def test_the_token_that_ends_an_output_is_sampled_again(
    known: tuple[int, ...], room: int, kept: list[int]
) -> None:
    assert recall.known_output(request(1, generated=int32(*known)), room).tolist() == kept


@pytest.mark.parametrize("sampling", [m.Sampling(logprobs=0), m.Sampling(prompt_logprobs=0)])
def test_tokens_are_taken_from_a_gateway_only_where_nobody_wants_their_scores(sampling: m.Sampling) -> None:
    plain = request(1, generated=int32(4))
    assert recall.untold(plain) is plain
    assert recall.untold(msgspec.structs.replace(plain, sampling=sampling)).generated == b""
