"""The commands that look after a server: `stretto status`, `top`, `restart` and `drain`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import click

from stretto.roles.client.address import DEFAULT_URL
from stretto.roles.client.flags import ServerUrl

_url = click.option("--url", type=ServerUrl(), default=DEFAULT_URL, show_default=True, help="The server.")
_uds = click.option("--uds", help="Its Unix socket, instead of an address.")
_key = click.option("--admin-key", help="Sent as the bearer token.", envvar="STRETTO_ADMIN_KEY")


@click.command("status", short_help="Show the roles of a server and a few figures.")
@click.option("--json", "as_json", is_flag=True, help="All there is, for programs to read.")
@_url
@_uds
def status_command(url: str, uds: str | None, as_json: bool) -> None:
    """Show the roles of a running server and a few figures; exit code 0 when all is well."""
    from stretto.roles.client.status import status

    sys.exit(status(url, uds=uds, as_json=as_json))


@click.command("top", short_help="Watch the roles and rates of a server.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds.")
@_url
@_uds
def top_command(url: str, uds: str | None, interval: float) -> None:
    """Watch the roles and rates of a running server; Ctrl-C ends it. Into a file or pipe: a row each time."""
    from stretto.roles.client.top import top

    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(top(url, uds=uds, interval=interval))


@click.command("restart", short_help="Replace the processes of a role.")
@click.argument("role")
@_key
@_url
@_uds
def restart_command(role: str, url: str, uds: str | None, admin_key: str | None) -> None:
    """Replace the processes of ROLE (tokenizer, or tokenizer.1 for one) while the server serves on."""
    from stretto.roles.client.admin import restart

    _do(restart, role, url, uds=uds, key=admin_key)


@click.command("drain")
@_key
@_url
@_uds
def drain_command(url: str, uds: str | None, admin_key: str | None) -> None:
    """Have a server take nothing new, finish what it has, and end."""
    from stretto.roles.client.admin import drain

    _do(drain, url, uds=uds, key=admin_key)


def _do(order: Callable[..., str], *args: Any, **options: Any) -> None:
    from stretto.roles.client.admin import Failed
    from stretto.roles.client.snapshot import NoAnswer

    try:
        click.echo(order(*args, **options))
    except (Failed, NoAnswer) as error:
        click.echo(f"stretto: {error}", err=True)
        sys.exit(1)
