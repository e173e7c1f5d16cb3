"""The commands that ask a server: `stretto chat`, `generate` and `profile`."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from stretto.roles.client.address import DEFAULT_URL
from stretto.roles.client.flags import NewFile, ServerUrl

F = TypeVar("F", bound=Callable[..., Any])

_url = click.option("--url", type=ServerUrl(), help=f"The server to talk to; default {DEFAULT_URL}.")
_uds = click.option("--uds", help="Its Unix socket, instead of an address.")


def _sampling(command: F) -> F:
    for option in (
        click.option("--seed", type=int, help="Makes sampling repeatable."),
        click.option("--max-tokens", type=click.IntRange(min=1), help="Upper bound of an answer."),
        click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Nucleus sampling."),
        click.option("--temperature", type=click.FloatRange(0, 2), help="0 is greedy."),
        click.option("--system", help="A system message."),
        click.option("--model", help="Start a server for this model, only for this command."),
        click.option("--api-key", help="Sent as the bearer token.", envvar="STRETTO_API_KEY"),
        _uds,
        _url,
    ):
        command = option(command)
    return command


@click.command("chat")
@_sampling
def chat_command(url: str | None, uds: str | None, model: str | None, **options: Any) -> None:
    """Talk to the model. Uses the server that runs; where none does, starts one for the conversation."""
    from stretto.roles.client.chat import chat

    with _reachable(url, uds, model) as (where, socket_path):
        sys.exit(chat(where, uds=socket_path, **_given(options)))


@click.command("generate", short_help="Write one answer to the standard output.")
@click.argument("prompt", default="-")
@click.option("--raw", is_flag=True, help="Continue the text itself, without the chat template.")
@_sampling
def generate_command(
    prompt: str, raw: bool, url: str | None, uds: str | None, model: str | None, **options: Any
) -> None:
    """Write the answer to PROMPT to the standard output; PROMPT - reads the standard input."""
    from stretto.roles.client.generate import generate

    text = _read() if prompt == "-" else prompt
    with _reachable(url, uds, model) as (where, socket_path):
        sys.exit(generate(text, where, uds=socket_path, raw=raw, **_given(options)))


@click.command("profile", short_help="Record what a server and its device do.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=5.0,
    show_default=True,
    help="How long to record; Ctrl-C ends it early.",
)
@click.option(
    "--out",
    type=NewFile(),
    default="trace.json",
    show_default=True,
    help="Where the trace goes.",
)
@click.option("--admin-key", help="Sent as the bearer token.", envvar="STRETTO_ADMIN_KEY")
@click.option("--api-key", help="Sent where there is no admin key.", envvar="STRETTO_API_KEY")
@_url
@_uds
def profile_command(
    seconds: float, out: Path, admin_key: str | None, api_key: str | None, url: str | None, uds: str | None
) -> None:
    """Record what every process of a running server and its device do; a trace for Perfetto, and a report."""
    from stretto.roles.client.profile import profile

    sys.exit(profile(url or DEFAULT_URL, out, seconds=seconds, uds=uds, key=admin_key or api_key))


def _read() -> str:
    """The standard input, without the newline at its end."""
    text = sys.stdin.read().removesuffix("\n")
    if not text:
        raise click.UsageError(
            "the standard input is empty; write the prompt there, or behind the command: "
            'stretto generate "Why is the sky blue?"'
        )
    return text


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def _reachable(url: str | None, uds: str | None, model: str | None) -> Iterator[tuple[str, str | None]]:
    """(url, uds) of the server that was asked for, or that runs, or that is started until the block ends."""
    if model is None and (url or uds or _listens(DEFAULT_URL)):
        yield url or DEFAULT_URL, uds
        return
    from stretto.roles.client.errors import StrettoError
    from stretto.roles.client.server import server

    try:
        with server(model or "") as path:
            yield DEFAULT_URL, path
    except StrettoError as error:
        click.echo(f"stretto: {error}", err=True)
        sys.exit(1)


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port or 80), timeout=1).close()
    except OSError:
        return False
    return True
