"""Every operation, with whatever its schema allows and much that it does not."""

from __future__ import annotations

import time
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks

from stretto.roles.gateway.openapi import document
from stretto.roles.gateway.operations import operations
from stretto.shm.board import State
from stretto.tests.roles.gateway.house import MODEL, NAMES, PATIENCE, House, chorus

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]

schema = schemathesis.openapi.from_dict(document(MODEL))


@pytest.fixture(scope="module")
def fuzzed(shared_house: House) -> House:
    """A healthy gateway whose back end answers whatever may be asked."""
    shared_house.reset()
    shared_house.back.script = chorus
    for name in NAMES:
        shared_house.board.set_state(name, State.READY)
        shared_house.board.beat(name, time.monotonic() + 3600)
    return shared_house


@schema.parametrize()
@settings(max_examples=10, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_sent_gets_an_answer_that_is_documented(case: Any, fuzzed: House) -> None:
    response = case.call(base_url=fuzzed.url, timeout=PATIENCE)
    case.validate_response(response, checks=CHECKS)
    assert fuzzed.live == 0
    assert fuzzed.http.get("/health").status_code == 200


def test_every_example_works(fuzzed: House) -> None:
    made = document(MODEL)
    for op in operations():
        if op.body is not None:
            content = made["paths"][op.path][op.method.lower()]["requestBody"]["content"]
            answer = fuzzed.http.post(op.path, json=content["application/json"]["example"])
            assert answer.status_code == 200, (op.path, answer.text)
