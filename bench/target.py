"""The server that a bench asks: one that runs already, or one that is started for the bench alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from stretto.roles.client.address import Address, parse
from stretto.roles.client.flags import ServerUrl
from stretto.roles.config import Config
from stretto.roles.options import config_options

F = TypeVar("F", bound=Callable[..., Any])

_OURS = ("model", "host", "port", "uds", "api_key")
"""Options of a server that the bench chooses itself."""


def serving_options(command: F) -> F:
    """Decorator: all options of `stretto serve` that a private server can have. Goes below all others."""
    return config_options(skip=_OURS)(command)


def target_options(command: F) -> F:
    """Decorator: a running server, or the model of a private one."""
    for option in reversed((
        click.option(
            "--url",
            type=ServerUrl(),
            help="A server that runs; without it, one of MODEL is started for the bench.",
        ),
        click.option("--transport", type=click.Choice(["http", "websocket"]), default="http",
                     show_default=True, help="HTTP with server-sent events, or Stretto's WebSocket."),
        click.option("--api-key", help="Sent as the bearer token.", envvar="STRETTO_API_KEY"),
        click.option("--no-token-ids", is_flag=True, help="For servers that refuse `return_token_ids`."),
    )):  # fmt: skip
        command = option(command)
    return click.argument("model", default="")(command)


class Target(NamedTuple):
    """Where to ask, and how."""

    address: Address
    api_key: str | None
    transport: str
    token_ids: bool


@contextmanager
def target(
    model: str,
    url: str | None,
    transport: str,
    api_key: str | None,
    no_token_ids: bool,
    options: Mapping[str, Any],
) -> Iterator[Target]:
    """The server of these options, until the block ends."""
    if url is not None:
        yield Target(_address(url), api_key, transport, not no_token_ids)
        return
    from stretto.roles.client.errors import StrettoError
    from stretto.roles.client.server import server

    try:
        with server(model, **chosen(options)) as uds:
            yield Target(parse(uds=uds), None, transport, not no_token_ids)
    except StrettoError as error:
        raise click.ClickException(str(error)) from None


def _address(url: str) -> Address:
    try:
        return parse(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the server, and all others."""
    names = {field.name for field in msgspec.structs.fields(Config)}
    ours = {name: value for name, value in options.items() if name not in names}
    return {name: value for name, value in options.items() if name in names}, ours


def chosen(options: Mapping[str, Any]) -> dict[str, Any]:
    """The server's options that are not at their defaults."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Config)}
    return {name: value for name, value in options.items() if value != defaults[name]}
