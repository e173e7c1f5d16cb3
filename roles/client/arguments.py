"""From keyword arguments to the supervisor's command line, checked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stretto.roles.config import Config

_OURS = ("model", "host", "port", "uds", "api_key")
"""Fields that the owner of a private server does not choose, or not as an option."""


def configure(model: str, options: Mapping[str, Any]) -> Config:
    """The configuration asked for. Raises `TypeError` for an unknown option, `ValueError` for a bad value."""
    names = [field.name for field in msgspec.structs.fields(Config) if _is_option(field)]
    for name in options:
        if name not in names:
            raise TypeError(f"{name!r} is not an option; the options are {', '.join(names)}")
    try:
        return msgspec.convert({**options, "model": model}, Config)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def arguments(
    model: str, options: Mapping[str, Any], *, uds: str, ready_fd: int, parent_fd: int
) -> list[str]:
    """The command line: `max_seqs=8` becomes `--max-seqs=8`, booleans become `--name` or `--no-name`."""
    line = ["serve", f"--uds={uds}", f"--ready-fd={ready_fd}", f"--parent-fd={parent_fd}"]
    line += (_flag(name.replace("_", "-"), value) for name, value in options.items())
    return [*line, "--", model] if model else line


def _flag(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


def _is_option(field: msgspec.structs.FieldInfo) -> bool:
    meta: msgspec.Meta = field.type.__metadata__[0]
    return field.name not in _OURS and (meta.extra or {}).get("cli", True)
