"""Servers on the byte-level model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.scripted.shared import SHELF
from e2e.scripted.trials import Bench, launched


@pytest.fixture(scope="session")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A server with room for everything at once."""
    with launched(SHELF, tmp_path_factory.mktemp("model")) as bench:
        yield bench
        bench.rest()


@pytest.fixture(scope="session")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A server that computes five tokens a step, and has no room for two long sequences."""
    args = ["--kv-memory", "112tokens", "--page-size", "4", "--max-batched-tokens", "5", "--max-seqs", "8"]
    with launched(SHELF, tmp_path_factory.mktemp("model"), *args) as bench:
        yield bench
        bench.rest()


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A server that runs one request at a time."""
    with launched(SHELF, tmp_path_factory.mktemp("model"), "--max-seqs", "1") as bench:
        yield bench
        bench.rest()
