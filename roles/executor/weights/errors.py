"""The one error of this package."""

from __future__ import annotations

from stretto.roles.actor import SetupError


class ModelError(SetupError):
    """A model cannot be used as given; the message says what its user can do about it."""
