"""Commands that are imported when they are run."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from stretto.roles.commands import COMMANDS, Commands
from stretto.supervisor import main


@click.group(cls=Commands, table={"late": ("stretto.bench.cli:bench_command", "Later.")})
def group() -> None:
    """Some commands."""


@group.command("own", short_help="Here.")
def own() -> None:
    click.echo("ran")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_line_is_what_the_command_says_of_itself(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert (command.name, command.get_short_help_str(200)) == (name, COMMANDS[name][1])


def test_commands_of_both_kinds_are_listed_and_run() -> None:
    run = CliRunner().invoke
    lines = run(group, ["--help"]).output.splitlines()
    assert [line.split() for line in lines[-2:]] == [["own", "Here."], ["late", "Later."]]
    assert run(group, ["own"]).output == "ran\n"
    assert run(group, ["late", "--help"]).output.startswith("Usage: group late")


def test_an_unknown_command_is_refused() -> None:
    result = CliRunner().invoke(group, ["early"])
    assert (result.exit_code, "No such command 'early'" in result.output) == (2, True)


def test_help_and_serve_import_no_other_command() -> None:
    code = (
        "import sys\nfrom stretto.supervisor import main\n"
        "for arguments in ['--help'], ['serve', '--help']: main(arguments, standalone_mode=False)\n"
        "print([m for m in sys.modules if m.startswith(('stretto.bench', 'stretto.roles.client'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
