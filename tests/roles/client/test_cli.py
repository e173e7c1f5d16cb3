"""What the commands make of their options and of standard input."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from stretto.roles.client.cli import generate_command


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
