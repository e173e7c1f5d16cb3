"""Whatever the server's own description allows, and much that it does not, gets an answer below 500."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import schemathesis
from e2e.serving import MODEL
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import checks

from stretto.roles.gateway.openapi import document

PATIENCE = 60.0
MOST = {
    "max_tokens": 3, "max_completion_tokens": 3, "max_output_tokens": 3, "max_new_tokens": 3, "n": 2,
    "best_of": 2, "min_tokens": 3,
}  # fmt: skip
"""Of what would take the machine minutes rather than show anything."""
ALWAYS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/responses": "max_output_tokens",
}


ORDERS = "^/(drain|restart)"
"""Paths of what ends the server, or processes of it, as asked."""
schema = schemathesis.openapi.from_dict(document(MODEL)).exclude(path_regex=ORDERS)
schema.config.phases.coverage.enabled = False


def bound(value: Any) -> Any:
    """The same body, but it asks for little, and of the model that there is."""
    if isinstance(value, list):
        return [bound(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = {name: bound(item) for name, item in value.items()}
    for name, most in MOST.items():
        if isinstance(value.get(name), int):
            value[name] = min(value[name], most)
    if isinstance(value.get("model"), str):
        value["model"] = MODEL
    return value


def test_the_server_describes_itself_so(server):
    assert httpx.get(server.url + "/openapi.json").json() == document(MODEL)


@schema.parametrize()
@settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_sent_is_answered(case, server):
    case.body = bound(case.body)
    if isinstance(case.body, dict) and case.path in ALWAYS:
        case.body.setdefault(ALWAYS[case.path], 3)
    answer = case.call(base_url=server.url, timeout=PATIENCE)
    case.validate_response(answer, checks=[checks.not_a_server_error, checks.status_code_conformance])


BODIES = st.fixed_dictionaries(
    {"prompt": st.lists(st.integers(0, 49151), min_size=1, max_size=40), "max_tokens": st.integers(0, 4)},
    optional={
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0.01, 1),
        "top_k": st.integers(-1, 50_000),
        "min_p": st.floats(0, 1),
        "seed": st.integers(-(2**63), 2**64 - 1),
        "n": st.integers(1, 4),
        "best_of": st.integers(1, 4),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0.01, 100),
        "logit_bias": st.dictionaries(st.integers(0, 49151).map(str), st.floats(-100, 100), max_size=5),
        "allowed_token_ids": st.lists(st.integers(0, 49151), min_size=1, max_size=5),
        "bad_words": st.lists(st.text(min_size=1, max_size=5), max_size=3),
        "min_tokens": st.integers(0, 4),
        "stop": st.lists(st.text(min_size=1, max_size=2), max_size=3),
        "stop_token_ids": st.lists(st.integers(0, 49151), max_size=3),
        "ignore_eos": st.booleans(),
        "logprobs": st.integers(0, 20),
        "prompt_logprobs": st.integers(0, 20),
        "echo": st.booleans(),
        "use_beam_search": st.booleans(),
        "length_penalty": st.floats(-10, 10),
        "early_stopping": st.sampled_from([True, False, "never"]),
        "stream": st.booleans(),
        "timeout": st.floats(0.001, 60),
        "priority": st.integers(-9, 9),
    },
)


@given(st.lists(BODIES, min_size=8, max_size=8))
@settings(max_examples=6, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_mixture_of_fields_is_answered_at_once(server, bodies):
    """Eight together: a refusal for those that contradict themselves, an answer for the others."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        codes = list(pool.map(lambda body: completed(server, body), bodies))
    assert set(codes) <= {200, 400, 408}


def completed(server, body):
    """The status of one request, whose answer has come to its end."""
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=PATIENCE)
    if body.get("stream") and answer.status_code == 200:
        assert answer.text.endswith("data: [DONE]\n\n") or '"code":"timeout"' in answer.text
    return answer.status_code


def test_the_server_is_well_afterwards(server):
    assert httpx.get(server.url + "/health").status_code == 200
    assert server.complete("Once upon a time", max_tokens=2)["usage"]["completion_tokens"] == 2
    metrics = server.metrics()
    assert metrics["stretto_requests_waiting"] == 0
