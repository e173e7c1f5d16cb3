"""The executor's one error that is not a bug."""

from __future__ import annotations

from stretto.roles.actor import SetupError


class ConfigError(SetupError):
    """What the user asked for cannot be had; the message says what to change."""
