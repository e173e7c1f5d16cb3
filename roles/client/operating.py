"""The commands that look after a server: `stretto status`, `top`, `restart` and `drain`."""

from __future__ import annotations

import sys

import click

from stretto.roles.client.address import DEFAULT_URL

_url = click.option("--url", default=DEFAULT_URL, show_default=True, help="The server.")
_uds = click.option("--uds", help="Its Unix socket, instead of an address.")


@click.command("status")
@_url
@_uds
def status_command(url: str, uds: str | None) -> None:
    """Show the roles of a running server and a few figures; exit code 0 when all is well."""
    from stretto.roles.client.status import status

    sys.exit(status(url, uds=uds))


OPERATIONS = (status_command,)
