"""What the commands make of their options and of standard input."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from stretto.roles.client import profile
from stretto.roles.client.cli import generate_command, profile_command


@pytest.mark.parametrize("args", [[], ["-"]])
def test_without_a_prompt_generate_reads_standard_input(server: Any, uds: str, args: list[str]) -> None:
    result = CliRunner().invoke(generate_command, [*args, "--uds", uds], input="say this\n")
    assert (result.exit_code, result.output) == (0, "this\n")


@pytest.mark.parametrize("given", ["", "\n"])
def test_an_empty_standard_input_is_a_mistake_of_usage(server: Any, uds: str, given: str) -> None:
    result = CliRunner().invoke(generate_command, ["--uds", uds], input=given)
    assert result.exit_code == 2
    assert 'stretto generate "Why is the sky blue?"' in result.output
    assert server.connections == 0


@pytest.mark.parametrize(
    ("args", "env", "key"),
    [
        (["--admin-key", "boss"], {}, "boss"),
        (["--api-key", "user"], {}, "user"),
        (["--api-key", "user", "--admin-key", "boss"], {}, "boss"),
        ([], {"STRETTO_ADMIN_KEY": "boss", "STRETTO_API_KEY": "user"}, "boss"),
        ([], {}, None),
    ],
)
def test_a_profile_is_asked_for_with_the_admin_key_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, args: list[str], env: dict[str, str], key: str | None
) -> None:
    keys: list[str | None] = []
    monkeypatch.setattr(profile, "profile", lambda *_, **options: keys.append(options["key"]))
    clean = {"STRETTO_ADMIN_KEY": None, "STRETTO_API_KEY": None}
    assert CliRunner().invoke(profile_command, args, env={**clean, **env}).exit_code == 0
    assert keys == [key]
