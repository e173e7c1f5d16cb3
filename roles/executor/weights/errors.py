"""The one error of this package."""


class ModelError(Exception):
    """A model cannot be used as given; the message says what its user can do about it."""
