"""Commands that are imported when they are run, and not before."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

CLIENT, OPERATING = "stretto.roles.client.cli", "stretto.roles.client.operating"
COMMANDS = {
    "bench": ("stretto.bench.cli:bench_command", "Measure speed, memory and repair."),
    "chat": (f"{CLIENT}:chat_command", "Talk to the model."),
    "drain": (
        f"{OPERATING}:drain_command",
        "Have a server take nothing new, finish what it has, and end.",
    ),
    "generate": (f"{CLIENT}:generate_command", "Write one answer to the standard output."),
    "plan": ("stretto.bench.plan:plan_command", "What a model will give on a GPU, without either."),
    "profile": (f"{CLIENT}:profile_command", "Record what a server and its device do."),
    "restart": (f"{OPERATING}:restart_command", "Replace the processes of a role."),
    "status": (f"{OPERATING}:status_command", "Show the roles of a server and a few figures."),
    "top": (f"{OPERATING}:top_command", "Watch the roles and rates of a server."),
}
"""What `stretto` does beside serving: where each command is, and the line that describes it."""


class Commands(click.Group):
    """A group that also has the commands of a table; its values are "module:name" and a line."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._table = table

    def list_commands(self, context: click.Context) -> list[str]:
        return [*super().list_commands(context), *self._table]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self._table:
            return super().get_command(context, name)
        module, _, attribute = self._table[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        own = [(name, command.get_short_help_str()) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*own, *((name, line) for name, (_, line) in self._table.items())])
