"""The web pages that `--allowed-origins` names."""

from __future__ import annotations

import re

from stretto.roles.actor import SetupError

_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/?#@:\[\]*\"']+)(:\d+)?")


def origins(text: str) -> tuple[str, ...]:
    """The origins in a list with commas, as browsers write them. Raises `SetupError` for what can be none."""
    found = tuple(part.strip().rstrip("/").lower() for part in text.split(",") if part.strip())
    for origin in found:
        if not _ORIGIN.fullmatch(origin):
            raise SetupError(
                f"--allowed-origins: {origin!r} is no origin; give them as http://localhost:3000, with "
                "commas between them or the option once for each, or * for any"
            )
    return found
