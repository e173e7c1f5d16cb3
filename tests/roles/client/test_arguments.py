"""Keyword arguments as the supervisor's command line."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.roles.client.arguments import arguments, configure


def test_options_become_flags() -> None:
    options = {"max_seqs": 8, "overlap": False, "prefix_cache": True, "kv_memory": "2GiB"}
    assert arguments("m", options, uds="/s", ready_fd=5, parent_fd=6) == [
        "serve",
        "--uds=/s",
        "--ready-fd=5",
        "--parent-fd=6",
        "--max-seqs=8",
        "--no-overlap",
        "--prefix-cache",
        "--kv-memory=2GiB",
        "--",
        "m",
    ]


def test_the_embedded_model_has_no_name() -> None:
    assert arguments("", {}, uds="/s", ready_fd=5, parent_fd=6)[-1] == "--parent-fd=6"


def test_options_are_fields_of_the_configuration() -> None:
    assert configure("m", {"max_seqs": 8}).max_seqs == 8


@pytest.mark.parametrize("name", ["max_seq", "port", "uds", "api_key", "model_dir", "cache_dir"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"'{name}' is not an option"):
        configure("m", {name: 1})


@pytest.mark.parametrize("options", [{"max_seqs": 0}, {"max_seqs": "8"}, {"device": "tpu"}])
def test_bad_values_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        configure("m", options)
