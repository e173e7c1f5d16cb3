"""Types of command line arguments: what cannot be meant is refused before anything is done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from stretto.roles.client.address import parse


class ServerUrl(click.ParamType):
    """A server's address, as `parse` reads it; the value is the text itself."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Fails with what an address looks like."""
        try:
            parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class NewFile(click.Path):
    """A file that will be written at the end of long work; its directory must take it now."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Fails where there is no directory for it, or none that may be written."""
        directory = Path(value).parent
        if not os.access(directory, os.W_OK | os.X_OK):
            self.fail(f"no file can be made in {str(directory)!r}.", param, ctx)
        return super().convert(value, param, ctx)
