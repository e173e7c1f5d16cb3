"""Clients of the shared server, and the oracle they are compared with."""

import anthropic
import openai
import pytest
from e2e.clients.oracle import Oracle


@pytest.fixture(scope="session")
def oracle(model_dir):
    return Oracle(model_dir)


@pytest.fixture(scope="session")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=None) as client:
        yield client


@pytest.fixture(scope="session")
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=None) as client:
        yield client
